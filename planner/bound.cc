#include "planner/bound.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "core/error.h"
#include "planner/dual_ascent.h"
#include "planner/relaxation.h"

namespace lowtide::planner {

struct BoundFinder::Relaxed {
  std::optional<Relaxation> single, general;
  std::map<std::tuple<Space, int64_t, int64_t>, int64_t> found;  // by space, level and work
};

BoundFinder::BoundFinder(const Trace& trace)
    : trace_(trace), relaxed_(std::make_unique<Relaxed>()) {}

BoundFinder::~BoundFinder() = default;

int64_t BoundFinder::lower_bound_ns(Space space, int64_t level_bytes, int64_t work) {
  const auto [entry, fresh] = relaxed_->found.try_emplace({space, level_bytes, work}, 0);
  if (fresh) entry->second = find(space, level_bytes, work);
  return entry->second;
}

int64_t BoundFinder::find(Space space, int64_t level_bytes, int64_t work) {
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
  const int64_t paid = plan.predicted.recompute_ns;
  // An eager plan cannot pay less than nothing.
  const bool is_free = trace_.execution == Execution::eager && paid == 0;
  const int64_t ns = is_free ? 0 : lower_bound_ns(space, level_bytes, work);
#ifdef LOWTIDE_CHECK_EVALUATOR
  LOWTIDE_CHECK(ns <= paid, "a plan of " + std::to_string(paid) +
                                " ns refutes the lower bound of " + std::to_string(ns) +
                                " ns of its space");
#endif
  Bound bound;
  if (ns < 0 || ns > paid) return bound;
  bound.lower_bound_ns = ns;
  bound.space = to_string(space);
  if (ns > 0) bound.gap = static_cast<double>(paid - ns) / static_cast<double>(ns);
  if (ns == 0 && paid == 0) bound.gap = 0;
  return bound;
}

const char* to_string(Space space) { return space == Space::single ? "single" : "general"; }

}  // namespace lowtide::planner
