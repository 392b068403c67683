#include "hooks/reserved_replay.h"

#include <string>

#include "core/error.h"
#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "hooks/flat_table.h"

namespace lowtide::hooks {

ReplayPeaks replay_peaks(std::span<const ReplayEvent> events, size_t granularity) {
  CachingCore core(make_counting_backend(granularity));
  core.set_reserved_target(0);
  FlatTable<void> live;  // by block number + 1, as 0 is no key
  for (size_t i = 0; i < events.size(); ++i) {
    const ReplayEvent& event = events[i];
    const uint64_t key = uint64_t{static_cast<uint32_t>(event.block)} + 1;
    void* block = live.find(key);
    if (event.bytes == 0 || (block == nullptr) != (event.bytes > 0)) {
      const char* const wrong = event.bytes == 0  ? " has zero bytes"
                                : event.bytes > 0 ? " allocates a live block"
                                                  : " frees a block that is not live";
      throw InvalidInput("memory event " + std::to_string(i) + " (block " +
                         std::to_string(event.block) + ")" + wrong +
                         "; pass the events of one step in order");
    }
    if (event.bytes < 0) {
      live.erase(key);
      core.free(block);
      continue;
    }
    block = core.allocate(static_cast<size_t>(event.bytes));
    if (block == nullptr || !live.insert(key, block)) {
      throw InvalidInput("memory event " + std::to_string(i) + " allocates " +
                         std::to_string(event.bytes) + " bytes, more than a machine can address");
    }
  }
  const CoreStats stats = core.stats();
  return {stats.requested.peak, stats.rounded.peak, stats.reserved.peak};
}

int64_t replay_reserved_peak(std::span<const ReplayEvent> events, size_t granularity) {
  return replay_peaks(events, granularity).reserved_bytes;
}

}  // namespace lowtide::hooks
