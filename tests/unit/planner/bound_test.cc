// Lower bounds of relaxations, and what plans say of them.
#include "planner/bound.h"

#include <gtest/gtest.h>

#include "planner/dual_ascent.h"
#include "planner/planner.h"
#include "planner/relaxation.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

constexpr int64_t kWork = 20'000'000;

// Drop some of three values that are all alive at one moment.
Relaxation three_values(int64_t scale) {
  Relaxation lp;
  lp.base_bytes = {0, 100 * scale, 0};
  for (const int64_t ns : {30, 10, 20}) {
    const int32_t x = lp.add_variable(ns * scale);
    lp.add_span(x, 1, 2, -20 * scale);
  }
  return lp;
}

TEST(DualAscent, FindsTheOptimumOfALinearProgram) {
  const Relaxation lp = three_values(1);
  EXPECT_EQ(DualAscent(lp, 100).run(kWork), 0);
  EXPECT_EQ(DualAscent(lp, 80).run(kWork), 10);
  EXPECT_EQ(DualAscent(lp, 70).run(kWork), 20);  // the cheapest and half of the next
  EXPECT_EQ(DualAscent(lp, 60).run(kWork), 30);
  EXPECT_EQ(DualAscent(lp, 40).run(kWork), 60);
}

TEST(DualAscent, FollowsRows) {
  // Dropping either value repeats one op, which costs once.
  Relaxation lp;
  lp.base_bytes = {100, 90};
  const int32_t first = lp.add_variable(0);
  const int32_t second = lp.add_variable(0);
  const int32_t replayed = lp.add_variable(500);
  lp.add_span(first, 0, 1, -50);
  lp.add_span(second, 1, 2, -50);
  lp.add_implication(first, replayed);
  lp.add_implication(second, replayed);
  EXPECT_EQ(DualAscent(lp, 50).run(kWork), 500);
  EXPECT_EQ(DualAscent(lp, 75).run(kWork), 250);  // half of it: a bound, not a plan
}

TEST(DualAscent, SurvivesTheLargestBytesAndTimes) {
  const Relaxation lp = three_values(int64_t{1} << 42);
  const int64_t bound = DualAscent(lp, int64_t{60} << 42).run(kWork);
  EXPECT_LE(bound, int64_t{30} << 42);
  EXPECT_GT(bound, int64_t{29} << 42);
  // Past what a proof can be computed for: the trivial bound.
  EXPECT_EQ(DualAscent(three_values(int64_t{1} << 50), int64_t{60} << 50).run(kWork), 0);
}

TEST(DualAscent, IsValidAfterAnyAmountOfWork) {
  const Relaxation lp = three_values(1);
  for (const int64_t work : {0, 1, 100, 1000, 10000}) {
    const int64_t bound = DualAscent(lp, 60).run(work);
    EXPECT_LE(bound, 30) << work;
    EXPECT_GE(bound, 0) << work;
  }
}

TEST(Bound, IsTheSameEachTime) {
  const Trace trace = testing::gpt_trace({.layers = 2});
  const int64_t level = trace.peaks.rounded_bytes * 3 / 4;
  const int64_t bound = BoundFinder(trace).lower_bound_ns(Space::single, level, kWork);
  BoundFinder finder(trace);
  EXPECT_EQ(finder.lower_bound_ns(Space::single, level, kWork), bound);
  EXPECT_EQ(finder.lower_bound_ns(Space::single, level, kWork), bound);
  EXPECT_GT(bound, 0);
}

TEST(Bound, GrowsAsTheLevelFallsAndIsLessInTheLargerSpace) {
  const Trace trace = testing::unet_trace(3);
  BoundFinder finder(trace);
  int64_t previous = -1;
  for (const int percent : {100, 90, 80, 70, 60}) {
    const int64_t level = trace.peaks.rounded_bytes / 100 * percent;
    const int64_t single = finder.lower_bound_ns(Space::single, level);
    const int64_t general = finder.lower_bound_ns(Space::general, level);
    EXPECT_GE(single, previous) << percent;
    EXPECT_LE(general, single + single / 100) << percent;
    previous = single;
  }
}

Frontier greedy_frontier(const Trace& trace) {
  PlannerOptions options;
  options.strategies = {"keep_all", "greedy"};
  return build_frontier(trace, options);
}

class BoundOfAPlan : public ::testing::Test {
 protected:
  BoundOfAPlan() { options_.bound_work = kWork; }
  [[nodiscard]] Plan plan_at(int64_t budget) const {
    return make_plan(trace_, frontier_, budget, options_);
  }

  const Trace trace_ = testing::gpt_trace({.layers = 2, .sequence = 64, .width = 64});
  const Frontier frontier_ = greedy_frontier(trace_);
  PlannerOptions options_;
};

TEST_F(BoundOfAPlan, IsBelowEveryPlanAndNamesASpaceThatHoldsIt) {
  const auto& points = frontier_.points();
  const size_t stride = std::max<size_t>(points.size() / 8, 1);
  double worst = 0;
  for (size_t i = 0; i < points.size(); i += stride) {
    const Plan plan = plan_at(points[i].predicted.peak_reserved_bytes);
    ASSERT_GE(plan.bound.lower_bound_ns, 0);
    EXPECT_LE(plan.bound.lower_bound_ns, plan.predicted.recompute_ns);
    bool repeats = false;
    for (const Decision& decision : plan.decisions) repeats |= !decision.keep_after_recompute;
    EXPECT_EQ(plan.bound.space, repeats ? "general" : "single");
    worst = std::max(worst, plan.bound.gap);
  }
  EXPECT_GT(worst, 0);
  // Near the plain peak greedy plans are good, and the bound has to say so.
  EXPECT_LT(plan_at(trace_.peaks.rounded_bytes / 10 * 9).bound.gap, 0.5);
}

TEST_F(BoundOfAPlan, OfAnAmpleBudgetIsZeroWithNoGap) {
  const Plan plan = plan_at(trace_.peaks.rounded_bytes);
  EXPECT_EQ(plan.bound.lower_bound_ns, 0);
  EXPECT_EQ(plan.bound.gap, 0);
}

TEST_F(BoundOfAPlan, IsOfTheLevelThatTheReserveLeaves) {
  const int64_t budget = trace_.peaks.rounded_bytes;
  const int64_t reserve = budget / 10;
  const Plan smaller = plan_at(budget - reserve);
  options_.reserve_bytes = reserve;
  EXPECT_EQ(plan_at(budget).bound.lower_bound_ns, smaller.bound.lower_bound_ns);
  EXPECT_GT(smaller.bound.lower_bound_ns, 0);
}

TEST_F(BoundOfAPlan, IsLeftOutWhereNoWorkIsAllowed) {
  options_.bound_work = 0;
  const Plan plan = plan_at(trace_.peaks.rounded_bytes);
  EXPECT_EQ(plan.bound.lower_bound_ns, -1);
  EXPECT_TRUE(plan.bound.space.empty());
}

}  // namespace
}  // namespace lowtide::planner
