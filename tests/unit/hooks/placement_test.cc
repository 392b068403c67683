#include "hooks/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "core/error.h"
#include "hooks/placement_sections.h"

namespace lowtide::hooks {
namespace {

using Buffers = std::vector<PlacedBuffer>;

// Judged moment by moment, without the product's notion of sections or overlap.
bool alive(const PlacedBuffer& buffer, int64_t time) {
  if (buffer.lower < buffer.upper) return buffer.lower <= time && time < buffer.upper;
  return buffer.lower <= time || time < buffer.upper;
}

bool meet(const PlacedBuffer& a, const PlacedBuffer& b) {
  // Two lives that meet do so where one of them begins, or at 0, where those over the end go on.
  for (const int64_t time : {a.lower, b.lower, int64_t{0}}) {
    if (alive(a, time) && alive(b, time)) return true;
  }
  return false;
}

int64_t live_bytes(const Buffers& buffers) {
  int64_t most = 0;
  for (const PlacedBuffer& moment : buffers) {
    int64_t sum = 0;
    for (const PlacedBuffer& buffer : buffers) {
      if (alive(buffer, moment.lower)) sum += buffer.bytes;
    }
    most = std::max(most, sum);
  }
  return most;
}

void expect_sound(const Buffers& buffers, const Placement& placement) {
  ASSERT_EQ(placement.offsets.size(), buffers.size());
  int64_t height = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t begin = placement.offsets[i], end = begin + buffers[i].bytes;
    EXPECT_GE(begin, 0);
    EXPECT_EQ(begin % buffers[i].alignment, 0);
    height = std::max(height, end);
    for (size_t j = 0; j < i; ++j) {
      const int64_t other = placement.offsets[j], other_end = other + buffers[j].bytes;
      const bool share_bytes = std::max(begin, other) < std::min(end, other_end);
      EXPECT_FALSE(share_bytes && meet(buffers[i], buffers[j])) << "buffers " << j << " and " << i;
    }
  }
  EXPECT_EQ(placement.height_bytes, height);
  EXPECT_LE(placement.lower_bound_bytes, height);
  EXPECT_GE(placement.lower_bound_bytes, live_bytes(buffers));
}

Buffers random_buffers(std::mt19937& random, int count, int64_t period, bool circle,
                       int64_t max_bytes, int max_alignment = 1) {
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  Buffers buffers;
  while (buffers.size() < static_cast<size_t>(count)) {
    PlacedBuffer buffer{below(period), below(period) + 1, 1 + below(max_bytes),
                        int64_t{1} << below(max_alignment)};
    if (buffer.lower == buffer.upper) continue;
    if (!circle && buffer.lower > buffer.upper) std::swap(buffer.lower, buffer.upper);
    buffers.push_back(buffer);
  }
  return buffers;
}

// The lowest height by trying all orders, each buffer on the top of those before it that it meets
// or at the bottom: every placement that is pushed down arises so.
int64_t lowest_height(const Buffers& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0U);
  int64_t lowest = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> tops(buffers.size());
    int64_t height = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      int64_t offset = 0;
      for (size_t j = 0; j < i; ++j) {
        if (meet(buffers[order[i]], buffers[order[j]])) offset = std::max(offset, tops[order[j]]);
      }
      const int64_t alignment = buffers[order[i]].alignment;
      offset = (offset + alignment - 1) / alignment * alignment;
      tops[order[i]] = offset + buffers[order[i]].bytes;
      height = std::max(height, tops[order[i]]);
    }
    lowest = std::min(lowest, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return lowest;
}

TEST(Placement, NothingNeedsNothing) {
  const Placement none = place({});
  EXPECT_TRUE(none.offsets.empty());
  EXPECT_EQ(none.height_bytes, 0);
  EXPECT_EQ(none.lower_bound_bytes, 0);
  const Placement empty = place(Buffers{{0, 5, 0}, {1, 2, 0, 64}});
  EXPECT_EQ(empty.height_bytes, 0);
  EXPECT_EQ(empty.offsets, (std::vector<int64_t>{0, 0}));
}

TEST(Placement, LivesThatOnlyTouchShareAnAddress) {
  const Buffers buffers = {{0, 3, 10}, {3, 6, 10}, {6, 9, 10}};
  EXPECT_EQ(place(buffers).height_bytes, 10);
}

TEST(Placement, ResidentsLieAtTheBottom) {
  const Buffers buffers = {{2, 5, 7}, {0, 10, 30}, {4, 9, 8}, {0, 10, 20, 16}};
  const Placement placement = place(buffers, {.period = 10});
  expect_sound(buffers, placement);
  EXPECT_EQ(placement.offsets[3], 0);  // by falling alignment
  EXPECT_EQ(placement.offsets[1], 20);
  EXPECT_GE(placement.offsets[0], 50);
  EXPECT_GE(placement.offsets[2], 50);
  EXPECT_EQ(placement.height_bytes, 65);
}

TEST(Placement, ACircleLivesOverItsEnd) {
  // The first and the last meet only over the end.
  const Buffers buffers = {{8, 2, 10}, {2, 5, 10}, {5, 8, 10}, {1, 3, 5}};
  const Placement placement = place(buffers, {.period = 10});
  expect_sound(buffers, placement);
  EXPECT_EQ(placement.height_bytes, 15);
  // Three arcs of which any two meet, and never all three: higher than what is live.
  const Buffers arcs = {{0, 6, 10}, {4, 10, 10}, {8, 2, 10}};
  EXPECT_EQ(PlacementSections(arcs, 12).max_live_bytes(), 20);
  const Placement stacked = place(arcs, {.period = 12});
  expect_sound(arcs, stacked);
  EXPECT_EQ(stacked.height_bytes, 30);
  EXPECT_EQ(stacked.lower_bound_bytes, 30);  // proven by the search
}

TEST(Placement, ATurnedCircleIsAsHigh) {
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    Buffers buffers = random_buffers(random, 6, 12, true, 9);
    const int64_t height = place(buffers, {.period = 12}).height_bytes;
    for (PlacedBuffer& buffer : buffers) {
      if (buffer.lower == 0 && buffer.upper == 12) continue;
      buffer.lower = (buffer.lower + 5) % 12;
      buffer.upper = (buffer.upper + 5) % 12;
    }
    EXPECT_EQ(place(buffers, {.period = 12}).height_bytes, height) << i;
  }
}

TEST(Placement, RandomBuffersAreSound) {
  std::mt19937 random(1);
  for (int i = 0; i < 150; ++i) {
    const bool circle = i % 2 == 1;
    const int count = 1 + static_cast<int>(random() % 60);
    const Buffers buffers = random_buffers(random, count, 40, circle, 1000, i % 3 == 0 ? 7 : 1);
    const Placement placement =
        place(buffers, {.period = circle ? 40 : 0, .max_nodes = i % 5 == 0 ? 0 : 500});
    expect_sound(buffers, placement);
    if (HasFailure()) FAIL() << "case " << i;
  }
}

TEST(Placement, TinyOnesAreAsLowAsCanBe) {
  std::mt19937 random(2);
  int above_live = 0;
  for (int i = 0; i < 240; ++i) {
    const bool circle = i % 2 == 1;
    const int count = 2 + static_cast<int>(random() % 5);
    Buffers buffers = random_buffers(random, count, 9, circle, 8, i % 4 < 2 ? 1 : 3);
    // Residents have their place; the rule is theirs, not the lowest height's.
    std::erase_if(buffers, [](const PlacedBuffer& it) { return it.lower == 0 && it.upper == 9; });
    if (buffers.empty()) continue;
    const int64_t lowest = lowest_height(buffers);
    // Without bytes, but now nothing else lives from the beginning to the end.
    buffers.insert(buffers.end(), {{0, 1, 0}, {8, 9, 0}});
    const Placement placement = place(buffers, {.period = circle ? 9 : 0, .max_nodes = 200'000});
    expect_sound(buffers, placement);
    EXPECT_EQ(placement.height_bytes, lowest) << "case " << i;
    EXPECT_EQ(placement.lower_bound_bytes, lowest) << "case " << i;
    above_live += lowest > live_bytes(buffers) ? 1 : 0;
  }
  EXPECT_GT(above_live, 10);  // else the search had nothing to prove
}

// Rectangles cut out of one block until they are small: they fill it without a gap.
Buffers cut_block(std::mt19937& random, int64_t time, int64_t bytes, int cuts) {
  struct Piece {
    int64_t lower, upper, bytes;
  };
  std::vector<Piece> pieces = {{0, time, bytes}};
  for (int i = 0; i < cuts; ++i) {
    const size_t which = random() % pieces.size();
    Piece& piece = pieces[which];
    Piece rest = piece;
    if (random() % 2 == 0) {
      if (piece.upper - piece.lower < 2) continue;
      const auto length = static_cast<uint64_t>(piece.upper - piece.lower - 1);
      const int64_t at = piece.lower + 1 + static_cast<int64_t>(random() % length);
      piece.upper = rest.lower = at;
    } else {
      if (piece.bytes < 2) continue;
      const auto height = static_cast<uint64_t>(piece.bytes - 1);
      piece.bytes = 1 + static_cast<int64_t>(random() % height);
      rest.bytes -= piece.bytes;
    }
    pieces.push_back(rest);
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  Buffers buffers;
  for (const Piece& piece : pieces) buffers.push_back({piece.lower, piece.upper, piece.bytes});
  return buffers;
}

TEST(Placement, TheSearchFillsABlockThatGreedyOrdersDoNot) {
  std::mt19937 random(4);
  int greedy = 0;
  for (int i = 0; i < 20; ++i) {
    const Buffers buffers = cut_block(random, 500, 10'000, 70);
    ASSERT_EQ(live_bytes(buffers), 10'000);
    const Placement placement = place(buffers, {.max_nodes = 300'000});
    expect_sound(buffers, placement);
    EXPECT_EQ(placement.height_bytes, 10'000) << i;
    greedy += place(buffers, {.max_nodes = 0}).height_bytes == 10'000 ? 1 : 0;
  }
  EXPECT_LT(greedy, 10);
}

TEST(Placement, ACapacityEndsTheSearch) {
  std::mt19937 random(5);
  const Buffers buffers = cut_block(random, 500, 10'000, 40);
  const Placement ample = place(buffers, {.capacity_bytes = 20'000});
  EXPECT_EQ(ample.nodes, 0);
  EXPECT_LE(ample.height_bytes, 20'000);
  const Placement hopeless = place(buffers, {.capacity_bytes = 9'999, .max_nodes = 1000});
  EXPECT_GE(hopeless.height_bytes, 10'000);
  EXPECT_GE(hopeless.lower_bound_bytes, 10'000);
}

TEST(Placement, TheSameNodesGiveTheSamePlacement) {
  std::mt19937 random(6);
  const Buffers buffers = random_buffers(random, 80, 60, false, 10'000);
  for (const int64_t nodes : {0, 1, 500, 5000}) {
    const Placement first = place(buffers, {.max_nodes = nodes});
    const Placement second = place(buffers, {.max_nodes = nodes});
    EXPECT_EQ(first.offsets, second.offsets);
    EXPECT_EQ(first.nodes, second.nodes);
    EXPECT_LE(first.nodes, nodes + 1);
  }
}

TEST(Placement, NoTimeStillPlaces) {
  std::mt19937 random(7);
  const Buffers buffers = random_buffers(random, 80, 60, false, 10'000);
  const Placement placement = place(buffers, {.max_nodes = 1'000'000'000, .max_seconds = 0});
  expect_sound(buffers, placement);
  EXPECT_EQ(placement.nodes, 0);
}

TEST(Placement, SizesNearTheLimitDoNotOverflow) {
  const int64_t most = int64_t{1} << 62;
  const Buffers two = {{0, 2, most / 2}, {1, 3, most / 2 - 1}, {2, 4, 1}};
  const Placement placement = place(two);
  expect_sound(two, placement);
  EXPECT_EQ(placement.height_bytes, most - 1);
  const int64_t last = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(place(Buffers{{-last - 1, last, 5}, {last - 1, last, 7}}).height_bytes, 12);
}

void expect_refused(const Buffers& buffers, int64_t period, const std::string& part) {
  try {
    (void)place(buffers, {.period = period});
    FAIL() << part;
  } catch (const InvalidInput& error) {
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

TEST(Placement, BadBuffersAreNamed) {
  const int64_t last = std::numeric_limits<int64_t>::max();
  expect_refused({{0, 1, 1}, {3, 3, 1}}, 0, "buffer 1 lives from 3 to 3");
  expect_refused({{4, 3, 1}}, 0, "buffer 0 lives from 4 to 3");
  expect_refused({{4, 4, 1}}, 9, "buffer 0 lives from 4 to 4 in a period of 9");
  expect_refused({{9, 4, 1}}, 9, "buffer 0 lives from 9 to 4");
  expect_refused({{0, 10, 1}}, 9, "buffer 0 lives from 0 to 10");
  expect_refused({{0, 1, -1}}, 0, "buffer 0 has -1 bytes");
  expect_refused({{0, 1, 1, 0}}, 0, "buffer 0 has an alignment of 0");
  expect_refused({{0, 1, last}}, 0, "buffer 0 brings the sum");
  expect_refused({{0, 1, 1}, {5, 6, 1, last}}, 0, "buffer 1 brings the sum");
  expect_refused({{0, 1, 1}}, -1, "period -1 is negative");
}

}  // namespace
}  // namespace lowtide::hooks
