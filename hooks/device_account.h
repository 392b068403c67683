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
#include "hooks/holders.h"

namespace lowtide::hooks {

// Of live blocks, at most `most`. Linear in their number.
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
