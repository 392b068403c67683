// Every plan of tiny problems, in both plan spaces: simulator and checker agree on each, the search
// finds the optimum at every level, and no bound is above it.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <string>

#include "plan_of.h"
#include "planner/bound.h"
#include "planner/checker.h"
#include "planner/planner.h"
#include "planner/simulator.h"
#include "tiny_problems.h"

namespace lowtide::planner {
namespace {

constexpr int kProblems = 200;
constexpr size_t kCandidates = 6;
constexpr int64_t kSearchWork = 2'000'000;

std::string name(const TinyProblem& problem) {
  return (problem.trace.execution == Execution::joint ? "joint, seed " : "eager, seed ") +
         std::to_string(problem.seed);
}

class BruteForce : public ::testing::TestWithParam<Space> {
 protected:
  static const std::vector<TinyProblem>& problems() {
    static const std::vector<TinyProblem> all = tiny_problems(kProblems, kCandidates);
    return all;
  }
};

TEST_P(BruteForce, SimulatorAndCheckerAgreeOnEveryPlan) {
  int64_t plans = 0;
  for (const TinyProblem& problem : problems()) {
    SCOPED_TRACE(name(problem));
    const Simulator simulator(problem.trace);
    for_each_plan(problem, GetParam(), [&](const DecisionTable& table) {
      ++plans;
      const SimulationResult result = simulator.simulate(table);
      const CheckResult check = check_plan(problem.trace, plan_of(problem.trace, table, result));
      ASSERT_EQ(check.verdict, Verdict::ok) << check.detail;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(plans, 10 * kProblems);
}

TEST_P(BruteForce, NoBoundIsAboveTheOptimum) {
  int levels = 0;
  double reached = 0;
  for (const TinyProblem& problem : problems()) {
    SCOPED_TRACE(name(problem));
    BoundFinder finder(problem.trace);
    const Optima least = optima(problem, GetParam());
    for (auto it = least.begin(); it != least.end(); ++it) {
      // The optimum of every level from this peak to just below the next.
      const auto next = std::next(it);
      const int64_t bound = finder.lower_bound_ns(GetParam(), it->first, kSearchWork);
      ASSERT_LE(bound, it->second) << "level " << it->first;
      if (next != least.end()) {
        ASSERT_LE(finder.lower_bound_ns(GetParam(), next->first - 1, kSearchWork), it->second);
      }
      if (it->second <= 0) continue;
      ++levels;
      reached += static_cast<double>(bound) / static_cast<double>(it->second);
    }
  }
  // A bound that is always zero would pass the above.
  EXPECT_GT(reached / levels, GetParam() == Space::single ? 0.5 : 0.35);
}

TEST_P(BruteForce, StrategyLowtideFindsTheOptimumAtEveryLevel) {
  PlannerOptions options;
  options.strategies = {"keep_all", GetParam() == Space::single ? "lowtide:single" : "lowtide"};
  int levels = 0;
  int missed = 0;
  for (const TinyProblem& problem : problems()) {
    SCOPED_TRACE(name(problem));
    const Frontier frontier = build_frontier(problem.trace, options);
    for (const auto& [peak, ns] : optima(problem, GetParam())) {
      ++levels;
      const FrontierPoint* point = frontier.select(peak);
      if (point == nullptr || point->predicted.recompute_ns > ns) {
        ++missed;
        std::printf(
            "%s: level %lld: optimum %lld, found %lld\n", name(problem).c_str(),
            static_cast<long long>(peak), static_cast<long long>(ns),
            point == nullptr ? -1LL : static_cast<long long>(point->predicted.recompute_ns));
        continue;
      }
      ASSERT_EQ(point->predicted.recompute_ns, ns) << "cheaper than the possible at " << peak;
    }
  }
  EXPECT_EQ(missed, 0) << "of " << levels;
}

INSTANTIATE_TEST_SUITE_P(Spaces, BruteForce, ::testing::Values(Space::single, Space::general),
                         [](const auto& space) { return std::string(to_string(space.param)); });

}  // namespace
}  // namespace lowtide::planner
