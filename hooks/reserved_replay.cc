#include "hooks/reserved_replay.h"

#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "hooks/step_replay.h"

namespace lowtide::hooks {
namespace {

constexpr int kSteps = 3;  // until all are alike: the first fills the cache
constexpr int64_t kAmple = CachingCore::kNoLimit - 1;  // a budget that nothing reaches

using Replay = StepReplay<CachingCore>;

ReplayHold hold(std::span<const ReplayEvent> events, int64_t target, size_t granularity) {
  Replay replay(events, make_counting_backend(granularity));
  replay.core().set_limit(kAmple);
  replay.core().set_reserved_target(target);
  int64_t before = 0;
  for (int i = 0; i < kSteps; ++i) {
    before = replay.core().stats().exchanges;
    replay.step();
  }
  const CoreStats stats = replay.core().stats();
  return {stats.reserved.peak, stats.exchanges - before};
}

}  // namespace

ReplayPeaks replay_peaks(std::span<const ReplayEvent> events, size_t granularity) {
  Replay replay(events, make_counting_backend(granularity));
  replay.core().set_reserved_target(0);
  replay.step();
  const CoreStats stats = replay.core().stats();
  return {stats.requested.peak, stats.rounded.peak, stats.reserved.peak};
}

int64_t replay_reserved_peak(std::span<const ReplayEvent> events, size_t granularity) {
  return replay_peaks(events, granularity).reserved_bytes;
}

std::vector<ReplayHold> replay_holds(std::span<const ReplayEvent> events, size_t granularity) {
  const int64_t least = replay_reserved_peak(events, granularity);
  std::vector<ReplayHold> holds = {hold(events, least, granularity)};
  holds[0].reserved_bytes = least;
  if (holds[0].exchanges == 0) return holds;
  const ReplayHold all = hold(events, CachingCore::kNoLimit, granularity);
  const ReplayHold half = hold(events, least + (all.reserved_bytes - least) / 2, granularity);
  for (const ReplayHold& next : {half, all}) {
    if (next.reserved_bytes > holds.back().reserved_bytes) holds.push_back(next);
  }
  return holds;
}

}  // namespace lowtide::hooks
