#include "hooks/reserved_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/error.h"
#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "support/mib.h"

namespace lowtide::hooks {
namespace {

TEST(ReservedReplay, NothingCostsNothing) { EXPECT_EQ(replay_reserved_peak({}), 0); }

TEST(ReservedReplay, LargeBlocksCostTheirPagesAtTheirWorstInstant) {
  const std::vector<ReplayEvent> events = {{1, 2 * kMiB}, {2, kMiB + 1},    {1, -2 * kMiB},
                                           {3, kMiB},     {2, -(kMiB + 1)}, {3, -kMiB}};
  const ReplayPeaks peaks = replay_peaks(events);
  EXPECT_EQ(peaks.requested_bytes, 3 * kMiB + 1);
  EXPECT_EQ(peaks.rounded_bytes, 3 * kMiB + 4096);
  EXPECT_EQ(peaks.reserved_bytes, 3 * kMiB + 4096);
}

TEST(ReservedReplay, ACachedSegmentNeverAddsToThePeak) {
  // 2 MiB freed, then 2 MiB + 1 page wanted: the first is given back, not kept beside it.
  const std::vector<ReplayEvent> events = {{1, 2 * kMiB}, {1, -1}, {2, 2 * kMiB + 4096}};
  EXPECT_EQ(replay_reserved_peak(events), 2 * kMiB + 4096);
}

TEST(ReservedReplay, SmallBlocksCostWholeSlabs) {
  std::vector<ReplayEvent> events;
  for (int32_t i = 0; i < 65; ++i) events.push_back({i, 1024});
  const ReplayPeaks peaks = replay_peaks(events);
  EXPECT_EQ(peaks.rounded_bytes, 65 * 1024);
  EXPECT_EQ(peaks.reserved_bytes, 2 * 64 * 1024);
}

TEST(ReservedReplay, LargerPagesCostMore) {
  const std::vector<ReplayEvent> events = {{1, 100'000}};
  EXPECT_EQ(replay_reserved_peak(events, 4096), 102'400);
  EXPECT_EQ(replay_reserved_peak(events, 65536), 131'072);
}

TEST(ReservedReplay, ANumberMayBeUsedAgainAfterItsFree) {
  const std::vector<ReplayEvent> events = {{-7, 4096 * 5}, {-7, -1}, {-7, 4096 * 6}};
  EXPECT_EQ(replay_reserved_peak(events), 4096 * 6);
}

TEST(ReservedReplay, BrokenSequencesAreRefusedByEvent) {
  const std::vector<std::vector<ReplayEvent>> broken = {
      {{0, 64}, {1, 0}}, {{0, 64}, {0, 64}}, {{0, 64}, {1, -64}}, {{0, 64}, {1, INT64_MAX}}};
  for (const std::vector<ReplayEvent>& events : broken) {
    try {
      static_cast<void>(replay_peaks(events));
      ADD_FAILURE() << "accepted";
    } catch (const InvalidInput& error) {
      EXPECT_NE(error.message().find("memory event 1"), std::string::npos) << error.message();
    }
  }
}

// Steps of a program: residents, then activations that rise and fall, thrice the same.
std::vector<ReplayEvent> random_step(uint32_t seed, int events, int32_t first_block) {
  std::mt19937 random(seed);
  std::vector<ReplayEvent> step;
  std::vector<ReplayEvent> live;
  int32_t next = first_block;
  while (static_cast<int>(step.size()) < events) {
    const bool grow =
        static_cast<int>(step.size()) < events / 2 ? random() % 4 != 0 : random() % 4 == 0;
    if (live.empty() || grow) {
      const int64_t bytes = random() % 3 == 0 ? 1 + random() % 9000 : 4 * (1 + random() % 500'000);
      live.push_back({next++, bytes});
      step.push_back(live.back());
    } else {
      std::swap(live[random() % live.size()], live.back());
      step.push_back({live.back().block, -live.back().bytes});
      live.pop_back();
    }
  }
  for (const ReplayEvent& block : live) step.push_back({block.block, -block.bytes});
  return step;
}

// The prediction is what a run needs: a core with that much and not a byte more runs the sequence,
// step after step, whatever the steps before left in its cache.
TEST(ReservedReplay, ARunWithThePredictedPeakAsLimitNeverFails) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const std::vector<ReplayEvent> step = random_step(seed, 3000, 0);
    const int64_t predicted = replay_reserved_peak(step);
    CachingCore core(make_counting_backend());
    core.set_limit(predicted);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<void*> blocks(step.size() + 1, nullptr);
      for (const ReplayEvent& event : step) {
        void*& block = blocks[static_cast<size_t>(event.block)];
        if (event.bytes > 0) {
          block = core.allocate(static_cast<size_t>(event.bytes));
          ASSERT_NE(block, nullptr) << "seed " << seed << ", repeat " << repeat;
        } else {
          core.free(block);
        }
      }
    }
    EXPECT_EQ(core.stats().reserved.peak, predicted);
  }
}

// Residents, an activation held to the end, and buffers of sizes that never fit each other.
std::vector<ReplayEvent> step_of_misfits() {
  std::vector<ReplayEvent> step = {{0, 3 * kMiB}, {1, 2 * kMiB}};
  for (int32_t i = 2; i < 40; ++i) {
    const int64_t bytes = kMiB + i * 65'536;
    step.push_back({i, bytes});
    step.push_back({i, -bytes});
  }
  step.push_back({1, -2 * kMiB});  // a gradient of the last step gives way to this one's
  step.push_back({50, 2 * kMiB});
  return step;
}

TEST(ReservedReplay, HoldsCostFewerExchangesTheMoreRoomThereIs) {
  const std::vector<ReplayEvent> step = step_of_misfits();
  const std::vector<ReplayHold> holds = replay_holds(step);
  ASSERT_GE(holds.size(), 2U);
  EXPECT_EQ(holds.front().reserved_bytes, replay_reserved_peak(step));
  EXPECT_EQ(holds.back().exchanges, 0);
  for (size_t i = 1; i < holds.size(); ++i) {
    EXPECT_GT(holds[i].reserved_bytes, holds[i - 1].reserved_bytes);
    EXPECT_LE(holds[i].exchanges, holds[i - 1].exchanges);
  }
}

TEST(ReservedReplay, AStepThatOnlyReusesHasOneHold) {
  std::vector<ReplayEvent> step = {{0, 3 * kMiB}};
  for (int32_t i = 1; i < 10; ++i) {
    step.push_back({i, kMiB});
    step.push_back({i, -kMiB});
  }
  const std::vector<ReplayHold> holds = replay_holds(step);
  ASSERT_EQ(holds.size(), 1U);
  EXPECT_EQ(holds[0].reserved_bytes, 4 * kMiB);
  EXPECT_EQ(holds[0].exchanges, 0);
}

// A run on the real backend keeps to each hold, and pays what it says.
TEST(ReservedReplay, ARunPaysTheExchangesOfItsHold) {
  const std::vector<ReplayEvent> step = step_of_misfits();
  for (const ReplayHold& hold : replay_holds(step)) {
    CachingCore core(make_cpu_backend());
    core.set_reserved_target(hold.reserved_bytes);
    void* resident = core.allocate(3 * kMiB);
    void* gradient = core.allocate(2 * kMiB);
    int64_t exchanges = 0;
    for (int repeat = 0; repeat < 4; ++repeat) {
      exchanges = core.stats().exchanges;
      for (size_t i = 2; i + 2 < step.size(); i += 2) {
        core.free(core.allocate(static_cast<size_t>(step[i].bytes)));
      }
      core.free(gradient);
      gradient = core.allocate(2 * kMiB);
    }
    EXPECT_LE(core.stats().reserved.peak, hold.reserved_bytes);
    EXPECT_EQ(core.stats().exchanges - exchanges, hold.exchanges) << hold.reserved_bytes;
    EXPECT_EQ(core.stats().exchange_ns > 0, hold.exchanges > 0);
    core.free(resident);
    core.free(gradient);
  }
}

TEST(ReservedReplay, GivesTheSameAnswerEveryTime) {
  const std::vector<ReplayEvent> step = random_step(9, 4000, 100);
  const ReplayPeaks first = replay_peaks(step);
  const ReplayPeaks second = replay_peaks(step);
  EXPECT_EQ(first.reserved_bytes, second.reserved_bytes);
  EXPECT_EQ(first.rounded_bytes, second.rounded_bytes);
  EXPECT_GE(first.reserved_bytes, first.rounded_bytes);
  EXPECT_GE(first.rounded_bytes, first.requested_bytes);
}

}  // namespace
}  // namespace lowtide::hooks
