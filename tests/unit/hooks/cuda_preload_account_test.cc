#include "hooks/cuda_preload_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace lowtide::hooks {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

class PreloadAccountTest : public ::testing::Test {
 protected:
  PlaceFigures place(int number = 0) {
    EXPECT_TRUE(account.read(figures));
    return figures.places[number];
  }
  std::vector<int64_t> largest(int number = 0) {
    const PlaceFigures of = place(number);
    std::vector<int64_t> found(of.largest, of.largest + PlaceFigures::kLargest);
    while (!found.empty() && found.back() == 0) found.pop_back();
    return found;
  }

  PreloadAccount account;
  PreloadFigures figures;
};

TEST_F(PreloadAccountTest, SumsAndPeaksOfEachPlace) {
  account.allocated(0, 0x1000, 5 * kMiB);
  account.allocated(kPinnedPlace, 0x2000, kMiB);
  EXPECT_TRUE(account.freed(0x1000));
  account.allocated(0, 0x1000, 3 * kMiB);
  const PlaceFigures device = place();
  EXPECT_EQ(device.live_bytes, 3 * kMiB);
  EXPECT_EQ(device.peak_bytes, 5 * kMiB);
  EXPECT_EQ(device.segments, 1);
  EXPECT_EQ(device.allocations, 2);
  EXPECT_EQ(device.frees, 1);
  EXPECT_EQ(place(kPinnedPlace).live_bytes, kMiB);
  EXPECT_EQ(place(1).allocations, 0);
}

TEST_F(PreloadAccountTest, NullAndNobodysMemory) {
  account.allocated(0, 0, 0);
  EXPECT_FALSE(account.freed(0));
  EXPECT_FALSE(account.freed(0x5000));
  account.allocated(kPreloadPlaces, 0x6000, kMiB);
  account.allocated(-1, 0x6000, kMiB);
  account.allocation_failed(3, 7 * kMiB);
  EXPECT_EQ(place(3).failures, 1);
  EXPECT_EQ(place(3).largest_failure_bytes, 7 * kMiB);
  EXPECT_EQ(figures.unknown_frees, 1);
  EXPECT_EQ(figures.lost, 2);
}

TEST_F(PreloadAccountTest, AnAddressThatComesAgainUnfreedIsOnePiece) {
  account.allocated(0, 0x1000, 5 * kMiB);
  account.allocated(0, 0x1000, 2 * kMiB);
  EXPECT_EQ(place().live_bytes, 2 * kMiB);
  EXPECT_EQ(place().segments, 1);
}

TEST_F(PreloadAccountTest, GrowthOfAPeakIsSaidBySixteenths) {
  EXPECT_FALSE(account.allocated(0, 1, kMiB - 1));
  EXPECT_TRUE(account.allocated(0, 2, 1));
  EXPECT_TRUE(account.allocated(0, 3, 159 * kMiB));
  EXPECT_FALSE(account.allocated(0, 4, 9 * kMiB));
  EXPECT_TRUE(account.allocated(0, 5, kMiB));
  account.freed(3);
  EXPECT_FALSE(account.allocated(0, 6, 100 * kMiB)) << "no new peak";
}

TEST_F(PreloadAccountTest, TheLargestAreThoseOfThePeak) {
  for (uint64_t i = 1; i <= 12; ++i) account.allocated(0, i, static_cast<int64_t>(i) * kMiB);
  account.allocated(1, 100, 99 * kMiB);
  account.created(0, 7, 50 * kMiB);
  const auto mib = [](int64_t count) { return count * kMiB; };
  EXPECT_THAT(largest(),
              ElementsAre(mib(50), mib(12), mib(11), mib(10), mib(9), mib(8), mib(7), mib(6)));
  for (uint64_t i = 1; i <= 12; ++i) account.freed(i);
  EXPECT_EQ(largest().size(), 8U) << "what was live then";
  EXPECT_EQ(place().noted_bytes, place().peak_bytes);
}

TEST_F(PreloadAccountTest, PhysicalMemoryLivesUntilItIsReleasedAndUnmapped) {
  account.created(0, 1, 4 * kMiB);
  account.mapped(0x10000000, 4 * kMiB, 1);
  account.mapped(0x20000000, 4 * kMiB, 1);
  EXPECT_TRUE(account.released(1));
  EXPECT_EQ(place().live_bytes, 4 * kMiB);
  EXPECT_EQ(place().frees, 1);
  account.unmapped(0x10000000, 4 * kMiB);
  EXPECT_EQ(place().live_bytes, 4 * kMiB);
  account.unmapped(0x20000000, 4 * kMiB);
  EXPECT_EQ(place().live_bytes, 0);
  EXPECT_FALSE(account.released(1));
  account.unmapped(0x20000000, 4 * kMiB);
  EXPECT_EQ(place().segments, 0);
}

TEST_F(PreloadAccountTest, OneUnmapMayCoverManyMappings) {
  for (uint64_t handle = 1; handle <= 3; ++handle) {
    account.created(0, handle, 2 * kMiB);
    account.mapped(0x10000000 + handle * 2 * kMiB, 2 * kMiB, handle);
    account.retained(handle);
    account.released(handle);
    account.released(handle);
  }
  account.unmapped(0x10000000 + 2 * kMiB, 4 * kMiB);
  EXPECT_EQ(place().live_bytes, 2 * kMiB);
}

TEST_F(PreloadAccountTest, AHandleThatComesAgainWhileTheOldOneIsMapped) {
  account.created(0, 1, 4 * kMiB);
  account.mapped(0x10000000, 4 * kMiB, 1);
  account.created(0, 1, 6 * kMiB);
  EXPECT_EQ(place().live_bytes, 10 * kMiB);
  account.unmapped(0x10000000, 4 * kMiB);
  EXPECT_EQ(place().live_bytes, 6 * kMiB);
  EXPECT_TRUE(account.released(1));
  EXPECT_EQ(place().live_bytes, 0);
}

TEST_F(PreloadAccountTest, MemoryOfAnotherProcessTakesNothing) {
  account.imported(9);
  account.imported(9);
  account.mapped(0x10000000, 4 * kMiB, 9);
  EXPECT_TRUE(account.released(9));
  EXPECT_TRUE(account.released(9));
  account.unmapped(0x10000000, 4 * kMiB);
  EXPECT_EQ(place().live_bytes, 0);
  EXPECT_EQ(place().frees, 0);
}

TEST_F(PreloadAccountTest, AResetEndsAllLivesOfTheDevice) {
  account.allocated(0, 0x1000, 5 * kMiB);
  account.allocated(1, 0x2000, 5 * kMiB);
  account.reset(0);
  EXPECT_EQ(place(0).live_bytes, 0);
  EXPECT_EQ(place(1).live_bytes, 5 * kMiB);
  account.freed(0x1000);
  account.allocated(0, 0x3000, kMiB);
  EXPECT_EQ(place(0).live_bytes, kMiB);
  EXPECT_EQ(place(0).segments, 1);
  account.forget_all();
  EXPECT_EQ(place(1).peak_bytes, 0);
  account.freed(0x2000);
  EXPECT_EQ(place(1).live_bytes, 0);
}

TEST_F(PreloadAccountTest, AgreesWithAMapThroughARandomLife) {
  std::mt19937 random(3);
  std::map<uint64_t, int64_t> live;
  int64_t bytes = 0, peak = 0;
  for (int i = 0; i < 50'000; ++i) {
    const uint64_t address = 1 + random() % 2000;
    if (const auto found = live.find(address); found != live.end()) {
      EXPECT_TRUE(account.freed(address));
      bytes -= found->second;
      live.erase(found);
    } else {
      const auto size = static_cast<int64_t>(random() % 100'000);
      account.allocated(0, address, size);
      live[address] = size;
      peak = std::max(peak, bytes += size);
    }
  }
  EXPECT_EQ(place().live_bytes, bytes);
  EXPECT_EQ(place().peak_bytes, peak);
  EXPECT_EQ(place().segments, static_cast<int64_t>(live.size()));
}

TEST_F(PreloadAccountTest, ThreadsThatHammerLoseNothing) {
  std::atomic<int64_t> unknown{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const uint64_t base = (t + 1) << 32;
      for (uint64_t i = 0; i < 3000; ++i) {
        account.allocated(static_cast<int>(t % 2), base + 16 * i, 1000);
        if (i % 3 != 0) unknown += account.freed(base + 16 * i) ? 0 : 1;
        const uint64_t handle = base + i;
        account.created(0, handle, 10);
        account.mapped(base + 0x10000000 + 16 * i, 16, handle);
        account.released(handle);
        account.unmapped(base + 0x10000000 + 16 * i, 16);
        if (i % 500 == 0) {
          static thread_local PreloadFigures seen;
          account.read(seen);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unknown, 0);
  EXPECT_EQ(place(0).live_bytes, 4 * 1000 * 1000);
  EXPECT_EQ(place(1).live_bytes, 4 * 1000 * 1000);
  EXPECT_EQ(place(0).segments + place(1).segments, 8000);
}

TEST_F(PreloadAccountTest, AStoppedThreadHoldsNobodyUpForLong) {
  account.allocated(0, 1, 5 * kMiB);
  account.lock();
  EXPECT_FALSE(account.read(figures));
  EXPECT_EQ(figures.places[0].live_bytes, 5 * kMiB);
  account.unlock();
  EXPECT_TRUE(account.read(figures));
}

}  // namespace
}  // namespace lowtide::hooks
