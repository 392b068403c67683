// The segment tree against a plain vector.
#include "planner/time_axis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lowtide::planner {
namespace {

TEST(TimeAxis, IsAPlainVectorSeenFaster) {
  std::mt19937_64 random(5);
  for (const int32_t size : {1, 2, 15, 16, 17, 100, 257, 1000}) {
    TimeAxis axis(size);
    std::vector<int64_t> plain(static_cast<size_t>(size));
    for (int step = 0; step < 500; ++step) {
      const auto begin = static_cast<int32_t>(random() % static_cast<uint64_t>(size + 1));
      const auto end = static_cast<int32_t>(random() % static_cast<uint64_t>(size + 1));
      const auto bytes = static_cast<int64_t>(random() % 100) - 30;
      axis.add(begin, end, bytes);
      for (int32_t i = begin; i < end; ++i) plain[static_cast<size_t>(i)] += bytes;
      const int64_t most = *std::max_element(plain.begin(), plain.end());
      ASSERT_EQ(axis.max(), std::max<int64_t>(0, most)) << size << " step " << step;
      const auto level = static_cast<int64_t>(random() % 200);
      int64_t excess = 0;
      for (const int64_t value : plain) excess += std::max<int64_t>(0, value - level);
      ASSERT_EQ(axis.excess(level), excess) << size << " step " << step;
    }
  }
}

TEST(TimeAxis, AnEmptyStepHasNoPeak) {
  TimeAxis axis(0);
  EXPECT_EQ(axis.max(), 0);
  EXPECT_EQ(axis.excess(0), 0);
}

}  // namespace
}  // namespace lowtide::planner
