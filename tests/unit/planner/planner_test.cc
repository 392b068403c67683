// Frontier and plans as a user of the planner sees them.
#include "planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/checker.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

int64_t reserved_peak(const FrontierPoint& point) { return point.predicted.peak_reserved_bytes; }

void expect_monotone(const Frontier& frontier) {
  const auto& points = frontier.points();
  ASSERT_FALSE(points.empty());
  for (size_t i = 1; i < points.size(); ++i) {
    ASSERT_LT(reserved_peak(points[i]), reserved_peak(points[i - 1]));
    ASSERT_GT(points[i].predicted.step_ns, points[i - 1].predicted.step_ns);
  }
}

// What the least of allocators would hold: synthetic traces round to 512 bytes.
int64_t rounded_peak(const std::vector<SimulatedMemoryEvent>& events) {
  int64_t live = 0;
  int64_t top = 0;
  for (const SimulatedMemoryEvent& event : events) {
    const int64_t rounded = (std::abs(event.bytes) + 511) / 512 * 512;
    top = std::max(top, live += event.bytes < 0 ? -rounded : rounded);
  }
  return top;
}

// Least time for each reachable rounded peak, over all decisions and keep bits.
std::map<int64_t, int64_t> brute_force(const Simulator& simulator) {
  const auto& candidates = simulator.problem().candidates();
  int64_t combinations = 1;
  for (size_t i = 0; i < candidates.size(); ++i) combinations *= 3;
  std::map<int64_t, int64_t> best;
  DecisionTable table(simulator.trace().storages.size());
  for (int64_t code = 0; code < combinations; ++code) {
    int64_t rest = code;
    for (const StorageId s : candidates) {
      table.action[static_cast<size_t>(s)] = rest % 3 == 0 ? Action::save : Action::drop;
      table.keep[static_cast<size_t>(s)] = rest % 3 != 2;
      rest /= 3;
    }
    const SimulationResult result = simulator.simulate(table);
    const auto [it, fresh] = best.emplace(result.peak_rounded_bytes, result.recompute_ns);
    if (!fresh) it->second = std::min(it->second, result.recompute_ns);
  }
  return best;
}

int64_t least_time(const std::map<int64_t, int64_t>& best, int64_t peak_bytes) {
  int64_t time = INT64_MAX;
  for (const auto& [p, ns] : best) {
    if (p <= peak_bytes) time = std::min(time, ns);
  }
  return time;
}

TEST(Frontier, AgainstBruteForceOnSmallPrograms) {
  int traces = 0;
  int reached_floor = 0;
  int points = 0;
  int optimal = 0;
  for (uint64_t seed = 1; traces < 150; ++seed) {
    const Trace trace = testing::random_trace(seed, 8);
    const Simulator simulator(trace);
    const size_t candidates = simulator.problem().candidates().size();
    if (candidates < 3 || candidates > 6) continue;
    ++traces;
    const auto best = brute_force(simulator);
    const Frontier frontier = build_frontier(trace);
    expect_monotone(frontier);
    if (HasFatalFailure()) return;
    EXPECT_LE(reserved_peak(frontier.points().front()), trace.peaks.rounded_bytes);
    EXPECT_GE(frontier.smallest_peak_bytes(), best.begin()->first) << "below the possible";
    reached_floor += frontier.smallest_peak_bytes() == best.begin()->first;
    for (const FrontierPoint& point : frontier.points()) {
      const int64_t least = least_time(best, reserved_peak(point));
      ASSERT_GE(point.predicted.recompute_ns, least) << "cheaper than the possible, seed " << seed;
      ++points;
      optimal += point.predicted.recompute_ns == least;
    }
  }
  // Greedy proves nothing; it is known to miss none of these.
  EXPECT_EQ(reached_floor, traces);
  EXPECT_EQ(optimal, points);
}

TEST(Frontier, ThousandBudgetsAreMonotoneAndNeverExceeded) {
  const Trace trace = testing::gpt_trace({.layers = 3, .sequence = 64, .width = 64});
  const Frontier frontier = build_frontier(trace);
  expect_monotone(frontier);
  EXPECT_GE(frontier.points().size(), 64u);
  std::mt19937_64 random(7);
  std::vector<int64_t> budgets;
  const int64_t smallest = frontier.smallest_peak_bytes();
  const int64_t span = trace.peaks.rounded_bytes * 11 / 10 - smallest;
  for (int i = 0; i < 1000; ++i) {
    budgets.push_back(smallest + static_cast<int64_t>(random() % static_cast<uint64_t>(span)));
  }
  std::sort(budgets.begin(), budgets.end());
  const FrontierPoint* previous = nullptr;
  for (const int64_t budget : budgets) {
    const FrontierPoint* point = frontier.select(budget);
    ASSERT_NE(point, nullptr);
    ASSERT_LE(reserved_peak(*point), budget);
    if (previous != nullptr) {
      ASSERT_GE(reserved_peak(*point), reserved_peak(*previous));
      ASSERT_LE(point->predicted.step_ns, previous->predicted.step_ns);
    }
    previous = point;
  }
  EXPECT_EQ(frontier.select(smallest - 1), nullptr);
  EXPECT_EQ(frontier.select(smallest + 99, 100), nullptr);
  EXPECT_NE(frontier.select(smallest + 100, 100), nullptr);
}

TEST(Frontier, SmallestPeakBeatsRecomputationByHand) {
  for (const bool dropout : {true, false}) {
    const Trace trace = testing::gpt_trace({.layers = 6, .dropout = dropout});
    const Simulator simulator(trace);
    DecisionTable by_hand(trace.storages.size());
    for (const StorageId s : simulator.problem().candidates()) {
      by_hand.action[static_cast<size_t>(s)] = Action::drop;
    }
    for (const StorageId s : testing::gpt_block_inputs(trace)) {
      by_hand.action[static_cast<size_t>(s)] = Action::save;
    }
    const SimulationResult hand = simulator.simulate(by_hand);
    const Frontier frontier = build_frontier(trace);
    EXPECT_LE(frontier.smallest_peak_bytes(), hand.peak_rounded_bytes);
    // At the peak of the plan by hand: no slower.
    EXPECT_LE(frontier.select(hand.peak_rounded_bytes)->predicted.recompute_ns, hand.recompute_ns);
    if (!dropout) continue;
    const int64_t resident = simulator.problem().resident().rounded;
    EXPECT_LE(frontier.smallest_peak_bytes() - resident,
              (trace.peaks.rounded_bytes - resident) * 33 / 100);
  }
}

TEST(Frontier, IsTheSameEachTime) {
  const Trace trace = testing::unet_trace(3);
  const Frontier a = build_frontier(trace);
  const Frontier b = build_frontier(trace);
  ASSERT_EQ(a.points().size(), b.points().size());
  for (size_t i = 0; i < a.points().size(); ++i) {
    EXPECT_EQ(a.points()[i].decisions, b.points()[i].decisions);
  }
}

TEST(Frontier, IsFilteredByTheReservedPeak) {
  const Trace trace = testing::chain_trace(30);
  // A replay with a mind of its own: fragmentation that does not follow the rounded peak.
  int calls = 0;
  PlannerOptions options;
  options.reserved_replay = [&](const std::vector<SimulatedMemoryEvent>& events) {
    const int64_t top = rounded_peak(events);
    return std::vector<ReservedPeak>{{top + 512 * (1 + calls++ * 7 % 5), 0}};
  };
  const Frontier frontier = build_frontier(trace, options);
  expect_monotone(frontier);
  EXPECT_GT(calls, static_cast<int>(frontier.points().size()));
  for (const FrontierPoint& point : frontier.points()) {
    EXPECT_GT(reserved_peak(point), point.predicted.peak_requested_bytes);
  }
}

// Bounds count rounded bytes: a replay below them would make plans look worse than they can be.
TEST(Frontier, AReplayThatReservesLessThanIsLiveIsRefused) {
  PlannerOptions options;
  options.reserved_replay = [](const std::vector<SimulatedMemoryEvent>& events) {
    return std::vector<ReservedPeak>{{rounded_peak(events) - 1, 0}};
  };
  EXPECT_THROW((void)build_frontier(testing::chain_trace(5), options), InternalError);
}

// With room the allocator exchanges less: what that saves is weighed against what dropping costs.
TEST(Frontier, WaysToHoldThePlanAreItsPoints) {
  Trace trace = testing::chain_trace(30);
  trace.exchange_ns = 1000;
  trace.watch_ns = 70;
  PlannerOptions options;
  options.reserved_replay = [&](const std::vector<SimulatedMemoryEvent>& events) {
    const int64_t top = rounded_peak(events);
    return std::vector<ReservedPeak>{{top, 2}, {top + 64, 1}, {top + (1 << 20), 0}};
  };
  const Frontier frontier = build_frontier(trace, options);
  expect_monotone(frontier);
  const FrontierPoint& first = frontier.points().front();
  EXPECT_TRUE(first.decisions.empty());
  EXPECT_EQ(first.predicted.memory_ns, 0);
  EXPECT_EQ(first.predicted.step_ns, trace.step_ns + 70);
  EXPECT_EQ(frontier.points().back().predicted.memory_ns, 2000);
  for (const FrontierPoint& point : frontier.points()) {
    const Predicted& p = point.predicted;
    EXPECT_EQ(p.watch_ns, 70);
    EXPECT_EQ(p.step_ns, trace.step_ns + 70 + p.recompute_ns + p.memory_ns);
    const Plan plan = make_plan(trace, frontier, p.peak_reserved_bytes, options);
    EXPECT_EQ(check_plan(trace, plan).verdict, Verdict::ok);
  }
}

TEST(Frontier, WithNothingToDropIsKeepAll) {
  testing::TraceBuilder b;
  const StorageId w = b.resident(100);
  b.free(b.op1({.reads = {w}, .creates = {1000}}));
  const Trace trace = b.finish();
  const Frontier frontier = build_frontier(trace);
  ASSERT_EQ(frontier.points().size(), 1u);
  EXPECT_TRUE(frontier.points()[0].decisions.empty());
  EXPECT_EQ(make_plan(trace, frontier, 5000).predicted.step_ns, trace.step_ns);
}

TEST(MakePlan, AccountAddsUpToThePeak) {
  Trace trace = testing::gpt_trace({.layers = 2, .sequence = 64, .width = 64});
  trace.outside_bytes = 1000;
  PlannerOptions options;
  options.reserve_bytes = 50;
  options.bound_work = 0;
  const Frontier frontier = build_frontier(trace, options);
  for (const FrontierPoint& point : frontier.points()) {
    const Plan plan = make_plan(trace, frontier, reserved_peak(point) + 1050, options);
    ASSERT_EQ(plan.decisions, point.decisions);
    const BudgetAccount& a = plan.account;
    EXPECT_EQ(a.resident_bytes + a.activation_bytes, plan.predicted.peak_requested_bytes);
    EXPECT_EQ(a.resident_bytes + a.activation_bytes + a.rounding_bytes + a.placement_bytes,
              plan.predicted.peak_reserved_bytes);
    EXPECT_EQ(a.outside_bytes, 1000);
    EXPECT_EQ(a.reserve_bytes, 50);
    EXPECT_LE(a.gradient_bytes, a.activation_bytes);
    EXPECT_EQ(plan.bound.lower_bound_ns, -1);
    EXPECT_TRUE(
        std::is_sorted(plan.decisions.begin(), plan.decisions.end(),
                       [](const Decision& x, const Decision& y) { return x.storage < y.storage; }));
    EXPECT_LE(plan.predicted.live_at_peak.size(), 32u);
    EXPECT_TRUE(check_plan(trace, plan));
  }
}

TEST(MakePlan, InfeasibleBudgetNamesTheSmallestReachable) {
  Trace trace = testing::chain_trace(10);
  trace.outside_bytes = 300;
  PlannerOptions options;
  options.reserve_bytes = 20;
  const Frontier frontier = build_frontier(trace, options);
  const int64_t smallest = frontier.smallest_peak_bytes() + 320;
  EXPECT_EQ(make_plan(trace, frontier, smallest, options).predicted.peak_reserved_bytes,
            smallest - 320);
  try {
    (void)make_plan(trace, frontier, smallest - 1, options);
    FAIL() << "a budget below the smallest reachable was accepted";
  } catch (const OutOfBudget& error) {
    EXPECT_EQ(error.smallest_reachable_bytes(), smallest);
    EXPECT_EQ(error.budget_bytes(), smallest - 1);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("smallest reachable budget is " +
                                                      std::to_string(smallest) + " bytes ("));
  }
  EXPECT_THROW((void)make_plan(trace, frontier, -1, options), InvalidInput);
}

TEST(Strategies, AreNamedAndUnknownOnesRefused) {
  EXPECT_THAT(strategy_names(),
              ::testing::IsSupersetOf({"keep_all", "greedy", "lowtide", "knapsack", "beam",
                                       "uniform", "sqrt", "nested", "chain_dp", "selective"}));
  const Trace trace = testing::chain_trace(3);
  try {
    (void)build_frontier(trace, {.strategies = {"keep_all", "clever"}, .reserved_replay = {}});
    FAIL() << "an unknown strategy was accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.message(),
                ::testing::AllOf(::testing::HasSubstr("\"clever\""),
                                 ::testing::HasSubstr("keep_all, greedy, lowtide[:single")));
  }
  EXPECT_THROW((void)build_frontier(trace, {.strategies = {}, .reserved_replay = {}}),
               InvalidInput);
  EXPECT_EQ(
      build_frontier(trace, {.strategies = {"keep_all"}, .reserved_replay = {}}).points().size(),
      1u);
}

}  // namespace
}  // namespace lowtide::planner
