// Peaks of a step from outside Lowtide: what was really allocated, counted by code that shares
// nothing with the product. CPU: a decorator around whatever allocator torch has, and what Lowtide
// maps from the system. CUDA: the native allocator's own counters.
// Create it after the session (it decorates the allocator in use) and destroy it before.
#pragma once

#include <cstdint>
#include <memory>

#include "options.h"

namespace lowtide::demo {

struct Peaks {                         // bytes; -1 = this judge cannot say
  int64_t begin_requested_bytes = -1;  // live when the step began
  int64_t requested_bytes = -1;        // the others are maxima since then
  int64_t rounded_bytes = -1;
  int64_t reserved_bytes = -1;
};

class MemoryJudge {
 public:
  virtual ~MemoryJudge() = default;
  virtual void begin_step() = 0;
  [[nodiscard]] virtual Peaks peaks() = 0;  // since begin_step
};

[[nodiscard]] std::unique_ptr<MemoryJudge> make_memory_judge(Device device);

}  // namespace lowtide::demo
