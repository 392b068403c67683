// F49 (pytorch#197871): a knapsack solver that saves two units where one fits. Here a plan's word
// is never taken: three saves of one unit, and small programs where each budget is tried.
#include <gtest/gtest.h>

#include "core/error.h"
#include "planner/checker.h"
#include "planner/planner.h"
#include "planner/simulator.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

Frontier by_knapsack(const Trace& trace) {
  PlannerOptions options;
  options.strategies = {"keep_all", "knapsack"};
  return build_frontier(trace, options);
}

TEST(Field, F49NoPlanHoldsMoreThanItsBudget) {
  // Four links of one unit: three of their inputs are made in the step and saved.
  const Trace units = testing::chain_trace(4, 1 << 20);
  const Frontier frontier = by_knapsack(units);
  for (int64_t unit = 1; unit <= 8; ++unit) {
    const int64_t budget = unit << 20;
    if (budget < frontier.smallest_peak_bytes()) {
      EXPECT_THROW((void)make_plan(units, frontier, budget), OutOfBudget);
      continue;
    }
    const Plan plan = make_plan(units, frontier, budget);
    const CheckResult check = check_plan(units, plan);
    EXPECT_TRUE(check) << check.detail;
    EXPECT_LE(check.peak_requested_bytes, budget);
  }
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Trace trace = testing::random_trace(seed, 9);
    const Frontier small = by_knapsack(trace);
    for (const FrontierPoint& point : small.points()) {
      const int64_t budget = point.predicted.peak_reserved_bytes;
      const CheckResult check = check_plan(trace, make_plan(trace, small, budget));
      ASSERT_TRUE(check) << "seed " << seed << ": " << check.detail;
      ASSERT_LE(check.peak_requested_bytes, budget) << "seed " << seed;
    }
  }
}

TEST(Field, F49AnOverfullPlanIsCaught) {
  const Trace trace = testing::chain_trace(4, 1 << 20);
  const Frontier frontier = by_knapsack(trace);
  Plan plan = make_plan(trace, frontier, trace.peaks.rounded_bytes);
  plan.budget_bytes = plan.predicted.peak_reserved_bytes - 1;
  EXPECT_EQ(check_plan(trace, plan).verdict, Verdict::over_budget);
}

}  // namespace
}  // namespace lowtide::planner
