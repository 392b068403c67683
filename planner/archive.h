// Every plan that any strategy has simulated, the dominated ones forgotten: for each rounded peak
// the cheapest plan. What is left is falling in peak and rising in time, whatever was offered, so
// strategies may offer anything. Not thread-safe. Units: bytes, ns.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "planner/simulator.h"

namespace lowtide::planner {

class Archive {
 public:
  struct Entry {
    int64_t recompute_ns = 0;
    std::vector<Decision> decisions;
    std::string strategy;
  };

  // Whether a plan with these figures (rounded peak) would be kept.
  [[nodiscard]] bool wants(int64_t peak_rounded_bytes, int64_t recompute_ns) const;
  // True where the plan is kept (for now).
  bool offer(const DecisionTable& table, int64_t peak_rounded_bytes, int64_t recompute_ns,
             std::string_view strategy);
  bool offer(const DecisionTable& table, const SimulationResult& result,
             std::string_view strategy) {
    return offer(table, result.peak_rounded_bytes, result.recompute_ns, strategy);
  }
  // By rising peak, falling time.
  [[nodiscard]] const std::map<int64_t, Entry>& entries() const { return entries_; }
  // The cheapest entry whose rounded peak is at most this; null where there is none.
  [[nodiscard]] const Entry* cheapest(int64_t peak_rounded_bytes) const;

  // A strategy with a time limit says by when all must be done, the frontier's points included.
  using Time = std::chrono::steady_clock::time_point;
  void end_by(Time time) { end_ = std::min(end_, time); }
  [[nodiscard]] Time end() const { return end_; }  // the largest where there is no limit

 private:
  Time end_ = Time::max();
  std::map<int64_t, Entry> entries_;  // by rounded peak
};

}  // namespace lowtide::planner
