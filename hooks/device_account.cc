#include "hooks/device_account.h"

#include <algorithm>
#include <limits>

#include "core/bytes.h"

namespace lowtide::hooks {

std::vector<Holder> holders_of(const DevicePool& pool, size_t most) {
  HolderCount count;
  pool.for_each([&](const DeviceBlock* block) {
    if (block->state != DeviceBlock::State::live) return;
    count.add(block->op, static_cast<int64_t>(block->bytes));
  });
  return count.largest(most);
}

std::string describe(const Shortage& shortage) {
  const auto asked =
      static_cast<int64_t>(std::min<size_t>(shortage.bytes, std::numeric_limits<int64_t>::max()));
  std::string text = "cannot allocate " + format_bytes(asked) + " on the GPU";
  if (shortage.forked) {
    return text +
           ": this process was forked from one that uses it. Fix: start workers with the "
           "multiprocessing method \"spawn\"";
  }
  if (shortage.trouble != nullptr) {
    return text + ": the device says \"" + shortage.trouble +
           "\". Fix: look for the first error of this program on the GPU, e.g. with "
           "CUDA_LAUNCH_BLOCKING=1";
  }
  const DeviceStats& stats = shortage.stats;
  const bool limited = shortage.limit != DevicePool::kNoLimit;
  if (limited) text += " within the limit of " + format_bytes(shortage.limit);
  text += ". Reserved " + format_bytes(stats.reserved.current) + ": live " +
          format_bytes(stats.rounded.current) + " in " + std::to_string(stats.blocks.current) +
          " blocks, free between them " + format_bytes(stats.inactive_split_bytes.current) +
          ", cached " + format_bytes(stats.cached) + ", waiting for other streams " +
          format_bytes(stats.waiting) + ".";
  if (shortage.device.total != 0) {
    text += " The device has " + format_bytes(static_cast<int64_t>(shortage.device.free)) +
            " free of " + format_bytes(static_cast<int64_t>(shortage.device.total)) + ".";
  }
  if (!shortage.holders.empty()) text += " Largest holders: " + to_text(shortage.holders) + ".";
  return text + (limited ? " Fix: a larger limit, or a smaller batch"
                         : " Fix: a smaller batch, or free what other processes hold");
}

}  // namespace lowtide::hooks
