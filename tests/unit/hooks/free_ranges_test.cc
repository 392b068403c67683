#include "hooks/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lowtide::hooks {
namespace {

TEST(FreeRanges, TakesWhatIsFreeAndNothingElse) {
  FreeRanges ranges(1000, 100);
  EXPECT_FALSE(ranges.take(999, 1));
  EXPECT_FALSE(ranges.take(1099, 2));
  EXPECT_TRUE(ranges.take(1010, 20));
  EXPECT_FALSE(ranges.take(1029, 1));
  EXPECT_FALSE(ranges.take(1005, 10));
  EXPECT_TRUE(ranges.take(1030, 70));
  EXPECT_TRUE(ranges.take(1000, 10));
  EXPECT_EQ(ranges.free_bytes(), 0);
  EXPECT_EQ(ranges.gaps(), 0U);
}

TEST(FreeRanges, NeighboursBecomeOneGap) {
  FreeRanges ranges(0, 30);
  EXPECT_TRUE(ranges.take(0, 10));
  EXPECT_TRUE(ranges.take(10, 10));
  EXPECT_TRUE(ranges.take(20, 10));
  ranges.put(0, 10);
  ranges.put(20, 10);
  EXPECT_EQ(ranges.gaps(), 2U);
  ranges.put(10, 10);
  EXPECT_EQ(ranges.gaps(), 1U);
  EXPECT_TRUE(ranges.all_free());
  EXPECT_TRUE(ranges.take(0, 30));
}

TEST(FreeRanges, TheTightestGapIsTakenFromItsLowerEnd) {
  FreeRanges ranges(0, 100);
  EXPECT_TRUE(ranges.take(20, 10));  // gaps of 20, 8 and 57
  EXPECT_TRUE(ranges.take(38, 5));
  EXPECT_EQ(ranges.take_best(7), 30);
  EXPECT_EQ(ranges.take_best(20), 0);
  EXPECT_EQ(ranges.take_best(58), -1);
  EXPECT_EQ(ranges.take_best(57), 43);
  EXPECT_EQ(ranges.take_best(2), -1);
  EXPECT_EQ(ranges.take_best(1), 37);
}

TEST(FreeRanges, AQuietGapIsTheOneThatIsNeededLast) {
  FreeRanges ranges(0, 100);
  EXPECT_TRUE(ranges.take(20, 10));  // gaps of 20 and 70
  const FreeRanges::Range needed[] = {{0, 20}, {30, 60}, {95, 5}};
  EXPECT_EQ(ranges.take_quiet(10, needed), 90) << "the upper end, needed last";
  EXPECT_EQ(ranges.take_quiet(10, needed), 30) << "all that is left is needed by the second";
  EXPECT_EQ(ranges.take_quiet(51, needed), -1);
  EXPECT_EQ(ranges.take_quiet(5, {}), 0) << "the smallest gap";
}

// Against one flag per byte.
TEST(FreeRanges, RandomTakesAndPutsAgreeWithAByteMap) {
  constexpr int64_t kBegin = 512, kBytes = 200;
  std::mt19937 random(3);
  FreeRanges ranges(kBegin, kBytes);
  std::vector<bool> busy(kBytes);
  struct Piece {
    int64_t offset, bytes;
  };
  std::vector<Piece> taken;
  for (int i = 0; i < 20'000; ++i) {
    const int64_t bytes = 1 + random() % 20;
    if (random() % 2 == 0) {
      int64_t offset = kBegin + random() % (kBytes - bytes);
      const bool best = random() % 2 == 0;
      const FreeRanges::Range needed[] = {{kBegin, 100}, {kBegin + 150, 20}};
      if (best && random() % 2 == 0) {
        offset = ranges.take_best(bytes);
      } else if (best) {
        offset = ranges.take_quiet(bytes, needed);
      }
      bool free = offset >= 0;
      for (int64_t at = 0; free && at < bytes; ++at) free = !busy[offset - kBegin + at];
      if (best) {
        ASSERT_TRUE(free || offset < 0);
      } else {
        ASSERT_EQ(ranges.take(offset, bytes), free);
      }
      if (!free) continue;
      for (int64_t at = 0; at < bytes; ++at) busy[offset - kBegin + at] = true;
      taken.push_back({offset, bytes});
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      const Piece piece = taken.back();
      taken.pop_back();
      ranges.put(piece.offset, piece.bytes);
      for (int64_t at = 0; at < piece.bytes; ++at) busy[piece.offset - kBegin + at] = false;
    }
    int64_t free_bytes = 0, gaps = 0;
    for (int64_t at = 0; at < kBytes; ++at) {
      if (busy[at]) continue;
      ++free_bytes;
      if (at == 0 || busy[at - 1]) ++gaps;
    }
    ASSERT_EQ(ranges.free_bytes(), free_bytes);
    ASSERT_EQ(ranges.gaps(), static_cast<size_t>(gaps));
  }
}

}  // namespace
}  // namespace lowtide::hooks
