#include "runtime/warmup.h"

#include <gtest/gtest.h>

#include <string>

namespace lowtide::runtime {
namespace {

std::string order(Warmup warmup) {
  std::string steps;
  while (!warmup.done()) {
    steps += warmup.next_is_unwatched() ? 'u' : 'w';
    warmup.next_is_unwatched() ? warmup.add_unwatched(1) : warmup.add_watched(1);
  }
  return steps;
}

TEST(Warmup, UnwatchedStepsComeInTurnAfterTheFirstStep) {
  EXPECT_EQ(order({0, 0}), "");
  EXPECT_EQ(order({2, 0}), "ww");
  EXPECT_EQ(order({2, 1}), "wuw");
  EXPECT_EQ(order({4, 3}), "wuwuwuw");
  EXPECT_EQ(order({2, 3}), "wuwuu");
  EXPECT_EQ(order({4, 1}), "wuwww");
}

TEST(Warmup, WithoutUnwatchedStepsTheLastWatchedOneIsThePlainStep) {
  Warmup warmup(3, 0);
  EXPECT_EQ(warmup.plain_ns(), 0);
  for (const int64_t ns : {900, 130, 110}) {
    warmup.add_watched(ns);
  }
  EXPECT_EQ(warmup.plain_ns(), 110);
  EXPECT_FALSE(warmup.plain_is_unwatched());
  EXPECT_EQ(warmup.watch_ns(), 0);
}

// A machine that gets slower from pair to pair: the difference within a pair stays what it is.
TEST(Warmup, WatchingIsPricedByPairs) {
  Warmup warmup(6, 5);
  warmup.add_watched(9000);
  for (const int64_t plain : {100, 200, 300, 400, 500}) {
    warmup.add_unwatched(plain);
    warmup.add_watched(plain + 7);
  }
  EXPECT_EQ(warmup.plain_ns(), 300);
  EXPECT_EQ(warmup.watch_ns(), 7);
}

TEST(Warmup, WatchedStepsWithoutAnUnwatchedOneBeforeThemPriceNothing) {
  Warmup warmup(4, 1);
  warmup.add_watched(9000);
  warmup.add_unwatched(100);
  for (const int64_t ns : {107, 300, 300}) {
    warmup.add_watched(ns);
  }
  EXPECT_EQ(warmup.watch_ns(), 7);
}

TEST(Warmup, WatchingNeverSavesTime) {
  Warmup warmup(2, 1);
  warmup.add_watched(9000);
  warmup.add_unwatched(100);
  warmup.add_watched(90);
  EXPECT_EQ(warmup.watch_ns(), 0);
  EXPECT_EQ(warmup.plain_ns(), 100);
}

TEST(Warmup, AFailedUnwatchedStepIsTheLast) {
  Warmup warmup(3, 2);
  warmup.add_watched(9000);
  ASSERT_TRUE(warmup.next_is_unwatched());
  warmup.give_up_unwatched();
  EXPECT_EQ(order(warmup), "ww");
}

}  // namespace
}  // namespace lowtide::runtime
