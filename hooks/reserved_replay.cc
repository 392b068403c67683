#include "hooks/reserved_replay.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "hooks/flat_table.h"

namespace lowtide::hooks {
namespace {

constexpr int kSteps = 3;  // until all are alike: the first fills the cache
constexpr int64_t kAmple = CachingCore::kNoLimit - 1;  // a budget that nothing reaches

// Steps through one core; blocks that a step leaves alive are the next one's.
class Replay {
 public:
  Replay(std::span<const ReplayEvent> events, size_t granularity)
      : events_(events), core_(make_counting_backend(granularity)) {}

  [[nodiscard]] CachingCore& core() { return core_; }

  void step() {
    FlatTable<void> live;  // by block number + 1, as 0 is no key
    bool beginning = true;
    for (size_t i = 0; i < events_.size(); ++i) {
      const ReplayEvent& event = events_[i];
      const uint64_t key = uint64_t{static_cast<uint32_t>(event.block)} + 1;
      void* block = live.find(key);
      if (event.bytes == 0 || (block == nullptr) != (event.bytes > 0)) refuse(i, block);
      if (event.bytes < 0) {
        if (std::exchange(beginning, false)) forget_the_rest();
        live.erase(key);
        core_.free(block);
        continue;
      }
      if (beginning) block = inherit(event.bytes);
      if (block == nullptr) block = core_.allocate(static_cast<size_t>(event.bytes));
      if (block == nullptr || !live.insert(key, block)) {
        throw InvalidInput("memory event " + std::to_string(i) + " allocates " +
                           std::to_string(event.bytes) + " bytes, more than a machine can address");
      }
    }
    forget_the_rest();
    live.for_each([this](void* block) {
      inherited_[core_.rounded_size(core_.requested_size(block))].push_back(block);
    });
  }

 private:
  [[noreturn]] void refuse(size_t i, const void* block) const {
    const ReplayEvent& event = events_[i];
    const char* const wrong = event.bytes == 0   ? " has zero bytes"
                              : block != nullptr ? " allocates a live block"
                                                 : " frees a block that is not live";
    throw InvalidInput("memory event " + std::to_string(i) + " (block " +
                       std::to_string(event.block) + ")" + wrong +
                       "; pass the events of one step in order");
  }

  void* inherit(int64_t bytes) {
    const auto found = inherited_.find(core_.rounded_size(static_cast<size_t>(bytes)));
    if (found == inherited_.end() || found->second.empty()) return nullptr;
    void* const block = found->second.back();
    found->second.pop_back();
    return block;
  }

  void forget_the_rest() {
    for (auto& [rounded, blocks] : inherited_) {
      for (void* const block : blocks) core_.free(block);
    }
    inherited_.clear();
  }

  std::span<const ReplayEvent> events_;
  CachingCore core_;
  std::unordered_map<size_t, std::vector<void*>> inherited_;  // by rounded size
};

ReplayHold hold(std::span<const ReplayEvent> events, int64_t target, size_t granularity) {
  Replay replay(events, granularity);
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
  Replay replay(events, granularity);
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
