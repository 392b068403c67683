// The warm-up steps: which of them are watched, and what they tell of the plain step's time and of
// what watching costs.
//
// Only a step that Lowtide does not watch is the plain step; the watched one after it differs by
// the price of watching, which every later step pays. A machine whose speed drifts is why steps are
// compared in pairs. Units: ns of the session's clock. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/cpu_clock.h"

namespace lowtide::runtime {

class Warmup {
 public:
  // The latter come in turn with the former, after the program's first step. None is negative.
  Warmup(int watched_steps, int unwatched_steps)
      : watched_wanted_(static_cast<size_t>(watched_steps)),
        unwatched_wanted_(static_cast<size_t>(unwatched_steps)) {}

  [[nodiscard]] bool next_is_unwatched() const {
    return unwatched_.size() < unwatched_wanted_ &&
           (watched_done_ > unwatched_.size() || watched_done_ >= watched_wanted_);
  }
  [[nodiscard]] bool done() const {
    return watched_done_ >= watched_wanted_ && unwatched_.size() >= unwatched_wanted_;
  }

  void add_watched(int64_t ns) {
    if (++watched_done_ == 1) {
      return;  // the program's first step does more than the others
    }
    if (!unwatched_.empty() && watched_done_ <= unwatched_.size() + 1) {
      prices_.push_back(ns - unwatched_.back());
    }
    last_watched_ns_ = ns;
  }
  void add_unwatched(int64_t ns) { unwatched_.push_back(ns); }
  // An unwatched step failed: there is no room for any.
  void give_up_unwatched() { unwatched_wanted_ = 0; }

  // Median of the unwatched steps, else the last watched one; 0 = neither ran.
  [[nodiscard]] int64_t plain_ns() const {
    return unwatched_.empty() ? last_watched_ns_ : profiler::pool(unwatched_).median_ns;
  }
  [[nodiscard]] bool plain_is_unwatched() const { return !unwatched_.empty(); }
  // Of a whole step; 0 = not measured.
  [[nodiscard]] int64_t watch_ns() const {
    return prices_.empty() ? 0 : std::max<int64_t>(profiler::pool(prices_).median_ns, 0);
  }

 private:
  size_t watched_wanted_, unwatched_wanted_;
  size_t watched_done_ = 0;
  int64_t last_watched_ns_ = 0;
  std::vector<int64_t> unwatched_;
  std::vector<int64_t> prices_;  // watched less the unwatched step just before it
};

}  // namespace lowtide::runtime
