// Who holds a device's memory, and the text that says so when it runs out.
//
// Pure functions of what they are given; the caller's lock guards the pool. May throw
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hooks/device_pool.h"
#include "hooks/device_stats.h"

namespace lowtide::hooks {

// Live blocks of one op and one size.
struct Holder {
  int32_t op = -1;  // current_op() at the allocation; -1 = none was known
  int64_t block_bytes = 0;
  int64_t blocks = 0;
  [[nodiscard]] int64_t bytes() const noexcept { return block_bytes * blocks; }
};

// Those that hold most, first; at most `most`. Linear in the number of blocks.
[[nodiscard]] std::vector<Holder> holders_of(const DevicePool& pool, size_t most);

struct Shortage {
  static constexpr size_t kHoldersShown = 5;
  size_t bytes = 0;                      // asked for
  int64_t limit = DevicePool::kNoLimit;  // bytes
  bool forked = false;                   // in a child that cannot use the device
  const char* trouble = nullptr;         // DeviceBackend::trouble()
  DeviceMemory device;                   // as the device sees it
  DeviceStats stats;
  std::vector<Holder> holders;
};

// Several sentences: what could not be had, where the bytes are, and what to do.
[[nodiscard]] std::string describe(const Shortage& shortage);

}  // namespace lowtide::hooks
