// The strategies that others use: each does what its paper or code says, on traces where that can
// be counted by hand, and all are judged by the same simulator and checker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/block_chain.h"
#include "planner/blocks.h"
#include "planner/checker.h"
#include "planner/planner.h"
#include "planner/problem.h"
#include "planner/strategy.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

const std::vector<std::string> kOnBlocks = {"uniform", "sqrt", "nested", "chain_dp", "selective"};

Trace marked(Trace trace) {
  trace.blocks = find_blocks(trace);
  trace.validate();
  return trace;
}

Trace marked_gpt(int layers) {
  return marked(testing::gpt_trace({.layers = layers, .sequence = 32, .width = 32}));
}

Frontier frontier_of(const Trace& trace, const std::string& name) {
  PlannerOptions options;
  options.strategies = {name};
  return build_frontier(trace, options);
}

int64_t rounded_peak(const FrontierPoint& point) { return point.predicted.peak_rounded_bytes; }

std::set<StorageId> dropped(const FrontierPoint& point) {
  std::set<StorageId> result;
  for (const Decision& decision : point.decisions) result.insert(decision.storage);
  return result;
}

std::string refusal(const Trace& trace, const std::string& name) {
  try {
    (void)frontier_of(trace, name);
  } catch (const InvalidInput& error) {
    return error.message();
  }
  return "";
}

TEST(FindBlocks, SeesTheLayersOfAModel) {
  for (const int layers : {2, 3, 6, 12}) {
    const Trace trace = marked_gpt(layers);
    ASSERT_EQ(trace.blocks.size(), static_cast<size_t>(layers));
    for (const TraceBlock& block : trace.blocks) {
      EXPECT_EQ(block.end - block.begin, trace.blocks[0].end - trace.blocks[0].begin);
    }
  }
  EXPECT_EQ(find_blocks(testing::chain_trace(9)).size(), 9u);
}

TEST(FindBlocks, FindsNothingWhereNothingRepeats) {
  EXPECT_TRUE(find_blocks(testing::unet_trace(3)).empty());
  EXPECT_TRUE(find_blocks(Trace{}).empty());
  EXPECT_TRUE(find_blocks(testing::chain_trace(1)).empty());
}

TEST(BlockStrategies, AreRefusedByNameWhereNoBlocksAreMarked) {
  const Trace trace = testing::gpt_trace({.layers = 2, .sequence = 32, .width = 32});
  for (const std::string& name : kOnBlocks) {
    EXPECT_THAT(refusal(trace, name), ::testing::AllOf(::testing::HasSubstr("\"" + name + "\""),
                                                       ::testing::HasSubstr("blocks are marked")));
  }
}

TEST(BlockStrategies, RefuseArgumentsThatMeanNothing) {
  const Trace trace = marked_gpt(3);
  EXPECT_THAT(refusal(trace, "uniform:4"), ::testing::HasSubstr("from 1 to 3"));
  for (const char* name : {"uniform:0", "uniform:-1", "uniform:2x", "uniform:", "sqrt:2",
                           "knapsack:weight", "nested:1", "uniform:99999999999999999999"}) {
    EXPECT_NE(refusal(trace, name), "") << name;
  }
  EXPECT_EQ(refusal(trace, "uniform:3"), "");
}

// Each block keeps what enters it and nothing of its own: recomputation by hand, as in the model.
TEST(Uniform, OneBlockAtATimeKeepsTheBlockInputs) {
  const Trace trace = marked_gpt(4);
  const Frontier frontier = frontier_of(trace, "uniform:1");
  ASSERT_EQ(frontier.points().size(), 1u);
  const std::set<StorageId> drops = dropped(frontier.points()[0]);
  const std::vector<StorageId> inputs = testing::gpt_block_inputs(trace);
  ASSERT_EQ(inputs.size(), 4u);
  for (const StorageId s : inputs) EXPECT_FALSE(drops.contains(s)) << s;
  const Simulator simulator(trace);
  const BlockChain chain(simulator, "uniform");
  size_t kept_inside = 0;
  for (const size_t block : chain.marked()) {
    for (const StorageId s : chain.stages()[block].interior) kept_inside += !drops.contains(s);
  }
  // Made in a block and kept: the inputs of three more blocks, and of what follows the last.
  EXPECT_LE(kept_inside, 4u);
  EXPECT_EQ(drops.size() + kept_inside, [&] {
    size_t all = 0;
    for (const size_t b : chain.marked()) all += chain.stages()[b].interior.size();
    return all;
  }());
  EXPECT_LT(rounded_peak(frontier.points()[0]), trace.peaks.rounded_bytes);
}

TEST(Uniform, LargerGroupsStoreLess) {
  const Trace trace = marked(testing::chain_trace(16, 1 << 20));
  const auto drops = [&](const char* name) {
    return frontier_of(trace, name).points()[0].decisions.size();
  };
  // All 15 saved links (the first reads an input) but the inputs of the groups behind the first.
  EXPECT_EQ(drops("uniform:1"), 0u);
  EXPECT_EQ(drops("uniform:2"), 8u);
  EXPECT_EQ(drops("uniform:4"), 12u);
  EXPECT_EQ(drops("uniform:16"), 15u);
}

// 16 equal links: 4 segments, the last one kept; 3 stored inputs + 3 links of the last segment are
// there as the backward begins.
TEST(Sqrt, StoresSquareRootOfTheChain) {
  const Trace trace = marked(testing::chain_trace(16, 1 << 20));
  const Frontier frontier = frontier_of(trace, "sqrt");
  ASSERT_EQ(frontier.points().size(), 1u);
  EXPECT_EQ(frontier.points()[0].decisions.size(), 9u);
  EXPECT_EQ(frontier.points()[0].predicted.replayed_ops, 9);
}

// Cutting deeper stores less, down to about log2(n) values at the price of more forward work.
TEST(Nested, TradesWorkForMemoryByDepth) {
  const Trace trace = marked(testing::chain_trace(64, 1 << 20));
  const Frontier frontier = frontier_of(trace, "nested");
  ASSERT_GE(frontier.points().size(), 3u);
  const int64_t resident = 1 << 20;
  EXPECT_LT(frontier.smallest_peak_bytes() - resident, 16 << 20);
  EXPECT_GT(frontier.points().back().predicted.replayed_ops, 64);
}

// The dynamic program is optimal on a chain, so no plan by hand may beat it there.
TEST(ChainDp, IsNotBeatenOnAChain) {
  const Trace trace = marked(testing::chain_trace(25, 1 << 20));
  const Frontier program = frontier_of(trace, "chain_dp");
  for (const char* name : {"uniform", "sqrt"}) {
    const Frontier by_hand = frontier_of(trace, name);
    for (const FrontierPoint& point : by_hand.points()) {
      const FrontierPoint* ours = program.select(point.predicted.peak_reserved_bytes);
      ASSERT_NE(ours, nullptr) << name << " at " << rounded_peak(point);
      EXPECT_LE(ours->predicted.recompute_ns, point.predicted.recompute_ns)
          << name << " at " << rounded_peak(point);
    }
  }
}

TEST(Selective, DropsTheAttentionCoreFirst) {
  const Trace trace = marked_gpt(3);
  const Frontier frontier = frontier_of(trace, "selective");
  bool core_seen = false;
  for (const FrontierPoint& point : frontier.points()) {
    std::multiset<std::string> makers;
    for (const StorageId s : dropped(point)) {
      makers.insert(
          trace.ops[static_cast<size_t>(trace.storages[static_cast<size_t>(s)].writers.front())]
              .name);
    }
    EXPECT_EQ(makers.count("mm"), 0u) << "a product is dear to recompute";
    core_seen = core_seen || makers.count("softmax") == 3;
  }
  EXPECT_TRUE(core_seen);
  EXPECT_THAT(refusal(marked(testing::chain_trace(9)), "selective"),
              ::testing::HasSubstr("attention core"));
}

TEST(Knapsack, FlopsNeedATraceThatHasThem) {
  Trace trace = testing::chain_trace(9);
  EXPECT_THAT(refusal(trace, "knapsack:flops"),
              ::testing::HasSubstr("needs a trace that has FLOPs"));
  for (TraceOp& op : trace.ops) op.flops = 1000;
  EXPECT_EQ(refusal(trace, "knapsack:flops"), "");
}

// What is saved is worth the most that fits, by exhaustive search over sums of bytes.
TEST(Knapsack, SavesWhatIsWorthMostForItsBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Trace trace = testing::random_trace(seed, 10);
    const Simulator simulator(trace);
    const Problem& problem = simulator.problem();
    const auto& items = problem.candidates();
    if (items.empty() || items.size() > 10) continue;
    Archive archive;
    explore("knapsack", simulator, archive);
    const auto worth = [&](StorageId s) {
      int64_t ns = 0;
      for (const OpId w : trace.storages[static_cast<size_t>(s)].writers) {
        ns += trace.ops[static_cast<size_t>(w)].time_ns();
      }
      return ns;
    };
    for (const auto& [_, entry] : archive.entries()) {
      std::set<StorageId> gone;
      for (const Decision& d : entry.decisions) gone.insert(d.storage);
      int64_t bytes = 0;
      int64_t value = 0;
      for (const StorageId s : items) {
        if (gone.contains(s)) continue;
        bytes += problem.size(s).requested;
        value += worth(s);
      }
      for (size_t set = 0; set < size_t{1} << items.size(); ++set) {
        int64_t other_bytes = 0;
        int64_t other_value = 0;
        for (size_t i = 0; i < items.size(); ++i) {
          if ((set >> i & 1) == 0) continue;
          other_bytes += problem.size(items[i]).requested;
          other_value += worth(items[i]);
        }
        // Sizes are rounded to a ten-thousandth of their sum, so only clearly smaller sets count.
        if (other_bytes * 100 < bytes * 99) {
          ASSERT_LE(other_value, value) << "seed " << seed;
        }
      }
    }
  }
}

TEST(Beam, ReachesBelowThePlainPeakAndIsRepeatable) {
  const Trace trace = marked_gpt(2);
  const Frontier a = frontier_of(trace, "beam");
  const Frontier b = frontier_of(trace, "beam");
  EXPECT_LT(a.smallest_peak_bytes(), trace.peaks.rounded_bytes);
  ASSERT_EQ(a.points().size(), b.points().size());
  for (size_t i = 0; i < a.points().size(); ++i) {
    EXPECT_EQ(a.points()[i].decisions, b.points()[i].decisions);
  }
}

// Every plan of every strategy passes the independent checker (inside make_plan).
TEST(Baselines, PassTheCheckerOnAllTraces) {
  std::vector<Trace> traces = {marked_gpt(3), marked(testing::chain_trace(20)),
                               testing::unet_trace(2)};
  for (uint64_t seed = 1; seed <= 12; ++seed) traces.push_back(testing::random_trace(seed, 14));
  for (Trace& trace : traces) {
    for (TraceOp& op : trace.ops) op.flops = op.host_ns * 3 % 17;
    int plans = 0;
    for (std::string name : strategy_names()) {
      if (name == "lowtide" || name == "greedy") continue;  // tested on their own
      if (name == "knapsack") name += ":flops";
      if (trace.blocks.empty() && std::ranges::count(kOnBlocks, name) > 0) continue;
      if (name == "selective" && trace.settings.name == "chain") continue;  // no attention in it
      PlannerOptions options;
      options.strategies = {"keep_all", name};
      options.bound_work = 0;  // tested on their own
      const Frontier frontier = build_frontier(trace, options);
      for (const FrontierPoint& point : frontier.points()) {
        const Plan plan = make_plan(trace, frontier, point.predicted.peak_reserved_bytes, options);
        EXPECT_TRUE(check_plan(trace, plan)) << name;
        ++plans;
      }
    }
    EXPECT_GE(plans, 3) << trace.settings.name;
  }
}

}  // namespace
}  // namespace lowtide::planner
