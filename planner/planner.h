// From a trace and an absolute budget to a plan.
//
// The frontier is built once per trace, independent of any budget, and is monotone by construction:
// points have strictly falling peak and rising step time. One set of drops may be several points:
// with more room the allocator exchanges less memory. A budget selects the point with
// the largest peak that fits. Every plan passes `check_plan` before it is returned.
// No torch, no CUDA, no solver. Deterministic. Throws OutOfBudget (with the smallest reachable
// budget) and InvalidInput (unknown strategy).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "core/trace.h"
#include "planner/bound.h"

namespace lowtide::planner {

// A way to hold the memory of a step: the allocator keeps to `peak_bytes` at the price of so many
// exchanges (Trace::exchange_ns) per step. What it may hold more of it need exchange less.
struct ReservedPeak {
  int64_t peak_bytes = 0;
  int64_t exchanges = 0;
};

// Replays an allocation sequence (requested bytes; >0 alloc of `block`, <0 free) and returns the
// ways to hold it, the least peak among them; never empty, none below the rounded peak. The runtime
// passes one over its own caching core; without one, reserved is taken as the rounded peak. Kept as
// a function so that planner does not include hooks.
struct SimulatedMemoryEvent;
using ReservedReplay =
    std::function<std::vector<ReservedPeak>(const std::vector<SimulatedMemoryEvent>&)>;

struct FrontierPoint {
  std::vector<Decision> decisions;
  Predicted predicted;  // complete: all peaks, times, live set
  std::string strategy;
};

class Frontier {
 public:
  Frontier(std::vector<FrontierPoint> points, const Trace& trace);
  // Falling peak_reserved_bytes, rising step_ns. Never empty: the first is keep-all (or better).
  [[nodiscard]] const std::vector<FrontierPoint>& points() const { return points_; }
  // Point with the largest reserved peak + fixed bytes <= budget; null = none.
  [[nodiscard]] const FrontierPoint* select(int64_t budget_bytes, int64_t fixed_bytes = 0) const;
  [[nodiscard]] int64_t smallest_peak_bytes() const;

 private:
  std::vector<FrontierPoint> points_;
};

struct PlannerOptions {
  std::vector<std::string> strategies = {"keep_all", "lowtide"};
  int64_t reserve_bytes = 0;       // the user's --reserve, added to outside_bytes of the trace
  ReservedReplay reserved_replay;  // may be empty
  int64_t bound_work = BoundFinder::kWork;  // 0: plans come without a bound
};

[[nodiscard]] Frontier build_frontier(const Trace& trace, const PlannerOptions& options = {});
// Selects, fills account and bound, checks. Throws OutOfBudget.
[[nodiscard]] Plan make_plan(const Trace& trace, const Frontier& frontier, int64_t budget_bytes,
                             const PlannerOptions& options = {});
[[nodiscard]] std::vector<std::string> strategy_names();

}  // namespace lowtide::planner
