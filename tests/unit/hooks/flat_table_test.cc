#include "hooks/flat_table.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace lowtide::hooks {
namespace {

TEST(FlatTable, AnEmptyTableHasNothing) {
  FlatTable<int> table;
  EXPECT_EQ(table.find(1), nullptr);
  table.erase(1);
  EXPECT_EQ(table.size(), 0u);
}

TEST(FlatTable, InsertReplacesTheValueOfAKey) {
  FlatTable<int> table;
  int first = 1;
  int second = 2;
  EXPECT_TRUE(table.insert(65536, &first));
  EXPECT_TRUE(table.insert(65536, &second));
  EXPECT_EQ(table.find(65536), &second);
  EXPECT_EQ(table.size(), 1u);
}

TEST(FlatTable, AgreesWithAMapThroughRandomLife) {
  FlatTable<int> table;
  std::unordered_map<uint64_t, int*> map;
  std::vector<int> values(1000);
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    // Few keys, so that probe paths collide and erasure has to move entries.
    const uint64_t key = (1 + random() % 300) * 65536;
    if (random() % 2 == 0) {
      int* const value = &values[random() % values.size()];
      ASSERT_TRUE(table.insert(key, value));
      map[key] = value;
    } else {
      table.erase(key);
      map.erase(key);
    }
    const uint64_t probe = (1 + random() % 300) * 65536;
    const auto found = map.find(probe);
    ASSERT_EQ(table.find(probe), found == map.end() ? nullptr : found->second);
    ASSERT_EQ(table.size(), map.size());
  }
  size_t visited = 0;
  table.for_each([&visited](int* /*value*/) { ++visited; });
  EXPECT_EQ(visited, map.size());
}

}  // namespace
}  // namespace lowtide::hooks
