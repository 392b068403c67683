#include "hooks/arena_figures.h"

#include <gtest/gtest.h>

namespace lowtide::hooks {
namespace {

constexpr int64_t kArenaMiB = int64_t{1} << 20;

ArenaFigures::Figure& all_of(ArenaFigures::Table& table, BlockFigure figure) {
  return table[static_cast<size_t>(figure)][0];
}

// The allocator's figures with one block of 4 MiB of its own, and the arena where there is one.
ArenaFigures::Table allocators(int64_t arena_bytes) {
  ArenaFigures::Table table{};
  for (const BlockFigure figure :
       {BlockFigure::requested, BlockFigure::allocated, BlockFigure::active}) {
    for (const size_t pool : {0, 2}) {
      const int64_t bytes = 4 * kArenaMiB + arena_bytes;
      table[static_cast<size_t>(figure)][pool] = {bytes, bytes, bytes, 0};
    }
  }
  for (const BlockFigure figure : {BlockFigure::blocks, BlockFigure::active_blocks}) {
    const int64_t count = arena_bytes > 0 ? 2 : 1;
    for (const size_t pool : {0, 2}) {
      table[static_cast<size_t>(figure)][pool] = {count, count, count, 0};
    }
  }
  return table;
}

TEST(ArenaFigures, CountBlocksAndNotTheArena) {
  ArenaFigures figures;
  figures.begin(allocators(0), 100 * kArenaMiB, 100 * kArenaMiB);
  figures.allocated(3 * kArenaMiB);
  figures.allocated(1000);
  figures.freed(1000);
  ArenaFigures::Table table = allocators(100 * kArenaMiB);
  figures.correct(table);
  EXPECT_EQ(all_of(table, BlockFigure::blocks).current, 2);
  EXPECT_EQ(all_of(table, BlockFigure::active_blocks).current, 3) << "the freed one waits";
  EXPECT_EQ(all_of(table, BlockFigure::requested).current, 7 * kArenaMiB + 1000);
  EXPECT_EQ(all_of(table, BlockFigure::allocated).current, 7 * kArenaMiB);
  EXPECT_EQ(all_of(table, BlockFigure::allocated).peak, 7 * kArenaMiB + 1024);
  EXPECT_EQ(all_of(table, BlockFigure::active).peak, 7 * kArenaMiB + 1024);
  EXPECT_EQ(table[static_cast<size_t>(BlockFigure::blocks)][1].peak, 1) << "the small pool";
  figures.completed(1000);
  figures.reset_peaks(allocators(100 * kArenaMiB));
  table = allocators(100 * kArenaMiB);
  figures.correct(table);
  EXPECT_EQ(all_of(table, BlockFigure::active).peak, 7 * kArenaMiB);
}

TEST(ArenaFigures, PeaksAreOfBothTogether) {
  ArenaFigures figures;
  figures.begin(allocators(0), 100 * kArenaMiB, 100 * kArenaMiB);
  figures.allocated(10 * kArenaMiB);
  figures.others_allocated(5 * kArenaMiB);
  figures.others_freed(5 * kArenaMiB);
  figures.others_completed(5 * kArenaMiB);
  figures.freed(10 * kArenaMiB);
  figures.completed(10 * kArenaMiB);
  figures.end();
  ArenaFigures::Table table = allocators(0);
  figures.correct(table);
  EXPECT_EQ(all_of(table, BlockFigure::requested).current, 4 * kArenaMiB);
  EXPECT_EQ(all_of(table, BlockFigure::requested).peak, 19 * kArenaMiB);
}

}  // namespace
}  // namespace lowtide::hooks
