#include "planner/bound.h"

#include <algorithm>
#include <optional>

#include "planner/dual_ascent.h"
#include "planner/relaxation.h"

namespace lowtide::planner {

struct BoundFinder::Relaxed {
  std::optional<Relaxation> single, general;
};

BoundFinder::BoundFinder(const Trace& trace)
    : trace_(trace), relaxed_(std::make_unique<Relaxed>()) {}

BoundFinder::~BoundFinder() = default;

int64_t BoundFinder::lower_bound_ns(Space space, int64_t level_bytes, int64_t work) {
  auto& relaxed = space == Space::single ? relaxed_->single : relaxed_->general;
  if (!relaxed) relaxed = relax(trace_, space);
  if (relaxed->base_bytes.empty()) {
    // Replays cost time; a joint plan saves at most the whole step.
    return trace_.execution == Execution::joint ? -trace_.step_ns : 0;
  }
  return DualAscent(*relaxed, level_bytes).run(work);
}

Bound BoundFinder::judge(const Plan& plan, int64_t level_bytes, int64_t work) {
  const bool repeats =
      std::any_of(plan.decisions.begin(), plan.decisions.end(),
                  [](const Decision& decision) { return !decision.keep_after_recompute; });
  const Space space = repeats ? Space::general : Space::single;
  const int64_t ns = lower_bound_ns(space, level_bytes, work);
  Bound bound;
  // A plan that is known to cost less refutes the bound: nothing is said rather than that.
  if (ns < 0 || ns > plan.predicted.recompute_ns) return bound;
  bound.lower_bound_ns = ns;
  bound.space = to_string(space);
  const int64_t paid = plan.predicted.recompute_ns;
  if (ns > 0) bound.gap = static_cast<double>(paid - ns) / static_cast<double>(ns);
  if (ns == 0 && paid == 0) bound.gap = 0;
  return bound;
}

const char* to_string(Space space) { return space == Space::single ? "single" : "general"; }

}  // namespace lowtide::planner
