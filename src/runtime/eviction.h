// Memory pressure: turns saved tensors back into recipes until enough bytes are free.
//
// Called by the allocator when a request would cross the budget. Victims are storages that only
// their slot owns, with a complete recipe, at least 1 KB; cheapest first by
//   measured ns of the missing upstream chain / bytes / distance to the next use.
// Pure farthest-next-use thrashes, own cost per byte ignores evicted parents (notes on eviction,
// section 2). An extra 1/32 of the limit is freed per call. No mutex is held while memory is freed.
#pragma once

#include <cstdint>
#include <memory>

#include "hooks/training_memory.h"
#include "runtime/runtime_state.h"

namespace lowtide::runtime {

class Evictor : public hooks::PressureHandler {
 public:
  Evictor(std::shared_ptr<Runtime> runtime, const hooks::TrainingMemory& memory)
      : runtime_(std::move(runtime)), memory_(memory) {}
  int64_t free_memory(int64_t need_bytes, int64_t request_bytes) noexcept override;

 private:
  std::shared_ptr<Runtime> runtime_;
  const hooks::TrainingMemory& memory_;
};

}  // namespace lowtide::runtime
