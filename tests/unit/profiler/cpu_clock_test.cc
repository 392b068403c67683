#include "profiler/cpu_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lowtide::profiler {
namespace {

TEST(CpuClock, OneThreadIsTimedByItsOwnWork) {
  EXPECT_EQ(choose_clock(1), ClockKind::thread_cpu);
  EXPECT_EQ(choose_clock(2), ClockKind::wall);
  EXPECT_EQ(choose_clock(16), ClockKind::wall);
}

TEST(CpuClock, SleepCountsOnTheWallOnly) {
  const int64_t cpu = now_ns(ClockKind::thread_cpu);
  const int64_t wall = now_ns(ClockKind::wall);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_LT(now_ns(ClockKind::thread_cpu) - cpu, 20'000'000);
  EXPECT_GE(now_ns(ClockKind::wall) - wall, 30'000'000);
}

TEST(CpuClock, WorkOfOtherThreadsDoesNotCount) {
  int64_t theirs = 0;
  const int64_t begin = now_ns(ClockKind::thread_cpu);
  std::thread([&theirs] {
    const int64_t start = now_ns(ClockKind::thread_cpu);
    while (theirs < 30'000'000) theirs = now_ns(ClockKind::thread_cpu) - start;
  }).join();
  EXPECT_LT(now_ns(ClockKind::thread_cpu) - begin, theirs / 2);
}

TEST(CpuClock, NeverFalls) {
  for (const ClockKind kind : {ClockKind::thread_cpu, ClockKind::wall}) {
    int64_t last = now_ns(kind);
    for (int i = 0; i < 10'000; ++i) {
      const int64_t now = now_ns(kind);
      ASSERT_GE(now, last);
      last = now;
    }
    EXPECT_GT(last, 0);
  }
}

TEST(CpuClock, NamesAreThoseOfTheTrace) {
  EXPECT_STREQ(to_string(ClockKind::thread_cpu), "thread_cpu");
  EXPECT_STREQ(to_string(ClockKind::wall), "wall");
}

TEST(Pool, NoSamplesIsAllZero) {
  const SampleStats stats = pool({});
  EXPECT_EQ(stats.count, 0);
  EXPECT_EQ(stats.median_ns, 0);
  EXPECT_EQ(stats.iqr_ns, 0);
  EXPECT_EQ(stats.min_ns, 0);
}

TEST(Pool, OneSampleIsItsOwnMedian) {
  const SampleStats stats = pool({42});
  EXPECT_EQ(stats.count, 1);
  EXPECT_EQ(stats.median_ns, 42);
  EXPECT_EQ(stats.iqr_ns, 0);
  EXPECT_EQ(stats.min_ns, 42);
}

TEST(Pool, OrderDoesNotMatterAndAnOutlierDoesNotMoveTheMedian) {
  const SampleStats stats = pool({30, 10, 1'000'000, 20, 40});
  EXPECT_EQ(stats.median_ns, 30);
  EXPECT_EQ(stats.iqr_ns, 20);  // 20 .. 40
  EXPECT_EQ(stats.min_ns, 10);
  EXPECT_EQ(stats.count, 5);
}

TEST(Pool, QuartilesLieBetweenTheNearestSamples) {
  const SampleStats stats = pool({0, 100, 200, 300});
  EXPECT_EQ(stats.median_ns, 150);
  EXPECT_EQ(stats.iqr_ns, 225 - 75);
}

TEST(Pool, LargeTimesDoNotOverflow) {
  constexpr int64_t kYear = 31'536'000'000'000'000;
  EXPECT_EQ(pool({kYear, 3 * kYear}).median_ns, 2 * kYear);
}

}  // namespace
}  // namespace lowtide::profiler
