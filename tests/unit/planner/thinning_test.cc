// Leaving out points of a frontier must not cost time that anybody would notice.
#include "planner/thinning.h"

#include <gtest/gtest.h>

#include "planner/archive.h"
#include "planner/planner.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

using Indices = std::vector<size_t>;

TEST(Thinning, KeepsAllWhereThereIsRoom) {
  const std::vector<PeakAndTime> points = {{100, 9}, {101, 8}, {102, 7}, {1000, 0}};
  EXPECT_EQ(thin(points, 4), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(thin(points, 1000), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(thin({}, 2), Indices{});
  EXPECT_EQ(thin({{5, 0}}, 2), Indices{0});
}

// Of three plans with nearly one peak, the slow ones go: a budget above all three gets the quick
// one. Kept by peak alone, every budget up to 2000 would pay a tenth more.
TEST(Thinning, OfNearlyEqualPeaksKeepsTheQuickest) {
  const std::vector<PeakAndTime> points = {{500, 200},  {1000, 110}, {1001, 105},
                                           {1002, 100}, {2000, 40},  {3000, 0}};
  EXPECT_EQ(thin(points, 5), (Indices{0, 1, 3, 4, 5}));
  EXPECT_EQ(thin(points, 4), (Indices{0, 3, 4, 5}));
  EXPECT_EQ(thin(points, 2), (Indices{0, 5}));
}

TEST(Thinning, AShareOfExtraTimeCountsNotItsLength) {
  // Near keep all a few ns are many per cent.
  const std::vector<PeakAndTime> points = {{100, 1030}, {200, 1010}, {300, 1000},
                                           {800, 20},   {900, 10},   {1000, 0}};
  EXPECT_EQ(thin(points, 5), (Indices{0, 2, 3, 4, 5}));
}

// What a strategy found reaches the plans: on a frontier with few points nothing is left out.
TEST(Thinning, AFrontierHasEveryPointOfASmallArchive) {
  const Trace trace = testing::gpt_trace({.layers = 3});
  const Simulator simulator(trace);
  Archive archive;
  explore("keep_all", simulator, archive);
  explore("greedy", simulator, archive);
  PlannerOptions options;
  options.strategies = {"keep_all", "greedy"};
  const Frontier frontier = build_frontier(trace, options);
  ASSERT_LE(archive.entries().size(), 256U);  // also where the reserved peak is replayed
  for (const auto& [peak, entry] : archive.entries()) {
    const FrontierPoint* point = frontier.select(peak);
    ASSERT_NE(point, nullptr) << "peak " << peak;
    EXPECT_EQ(point->predicted.recompute_ns, entry.recompute_ns) << "at peak " << peak;
  }
}

}  // namespace
}  // namespace lowtide::planner
