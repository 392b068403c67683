#include "hooks/device_replay.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "support/mib.h"

namespace lowtide::hooks {
namespace {

int64_t reserved(const std::vector<ReplayEvent>& events) {
  const std::vector<ReplayHold> holds = replay_device_holds(events);
  EXPECT_EQ(holds.size(), 1u);
  EXPECT_EQ(holds.front().exchanges, 0);
  return holds.front().reserved_bytes;
}

TEST(DeviceReplay, SegmentsAreThoseOfTheNativeAllocator) {
  EXPECT_EQ(reserved({{0, 100}, {0, -100}}), 2 * kMiB);
  EXPECT_EQ(reserved({{0, 3 * kMiB}, {0, -3 * kMiB}}), 20 * kMiB);
  EXPECT_EQ(reserved({{0, 11 * kMiB}, {0, -11 * kMiB}}), 12 * kMiB);
}

TEST(DeviceReplay, WhatAStepFreesServesItsLaterRequests) {
  EXPECT_EQ(reserved({{0, 32 * kMiB}, {0, -1}, {1, 30 * kMiB}, {1, -1}}), 32 * kMiB);
  EXPECT_EQ(reserved({{0, 32 * kMiB}, {1, 30 * kMiB}, {0, -1}, {1, -1}}), 62 * kMiB);
}

// A gradient that outlives the step is the next one's, not one more.
TEST(DeviceReplay, WhatAStepLeavesAliveIsTheNextOnes) {
  EXPECT_EQ(reserved({{0, 32 * kMiB}, {1, 64 * kMiB}, {1, -1}}), 96 * kMiB);
}

TEST(DeviceReplay, RefusesWhatIsNoSequence) {
  EXPECT_THROW((void)replay_device_holds(std::vector<ReplayEvent>{{0, 8}, {0, 8}}), InvalidInput);
  EXPECT_THROW((void)replay_device_holds(std::vector<ReplayEvent>{{0, -8}}), InvalidInput);
}

}  // namespace
}  // namespace lowtide::hooks
