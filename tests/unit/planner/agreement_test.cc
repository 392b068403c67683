// The simulator and the checker are two programs that must tell the same story.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/plan.h"
#include "plan_of.h"
#include "planner/checker.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

DecisionTable random_decisions(const Problem& problem, std::mt19937_64& random) {
  DecisionTable table(problem.trace().storages.size());
  const uint64_t odds = 1 + random() % 8;
  for (const StorageId s : problem.candidates()) {
    if (random() % 8 < odds) table.action[static_cast<size_t>(s)] = Action::drop;
    table.keep[static_cast<size_t>(s)] = random() % 3 != 0;
  }
  return table;
}

// The sequence with residents, which come first and as they were placed, at what was asked for.
std::vector<SimulatedMemoryEvent> requested(const Trace& trace,
                                            std::vector<SimulatedMemoryEvent> events) {
  std::vector<int64_t> residents;
  for (const TraceStorage& storage : trace.storages) {
    if (storage.resident) residents.push_back(storage.bytes);
  }
  for (SimulatedMemoryEvent& event : events) {
    const auto block = static_cast<size_t>(event.block);
    if (block < residents.size()) event.bytes = (event.bytes > 0 ? 1 : -1) * residents[block];
  }
  return events;
}

// Peak of a recorded sequence, and that no block is freed twice or before it is allocated.
int64_t peak_of(const std::vector<SimulatedMemoryEvent>& events) {
  std::vector<int64_t> blocks;
  int64_t live = 0;
  int64_t peak = 0;
  for (const SimulatedMemoryEvent& event : events) {
    const auto block = static_cast<size_t>(event.block);
    if (block >= blocks.size()) blocks.resize(block + 1);
    EXPECT_EQ(blocks[block], event.bytes > 0 ? 0 : -event.bytes) << "block " << block;
    blocks[block] += event.bytes;
    live += event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

void expect_agreement(const Trace& trace, uint64_t seed, int decisions) {
  trace.validate();
  const Simulator simulator(trace);
  std::mt19937_64 random(seed);
  for (int d = 0; d < decisions; ++d) {
    const DecisionTable table = random_decisions(simulator.problem(), random);
    const SimulationResult fast = simulator.simulate(table);
    const SimulationResult recorded =
        simulator.simulate(table, {.record_memory_events = true, .record_live_set = true});
    ASSERT_EQ(fast.peak_requested_bytes, recorded.peak_requested_bytes);
    ASSERT_EQ(fast.peak_rounded_bytes, recorded.peak_rounded_bytes);
    ASSERT_EQ(fast.recompute_ns, recorded.recompute_ns);
    ASSERT_EQ(fast.peak_event, recorded.peak_event);
    ASSERT_EQ(peak_of(requested(trace, recorded.memory_events)), fast.peak_requested_bytes);
    int64_t live = 0;
    for (const StorageId s : recorded.live_at_peak)
      live += trace.storages[static_cast<size_t>(s)].bytes;
    ASSERT_EQ(live, fast.peak_requested_bytes);
    const CheckResult check = check_plan(trace, plan_of(trace, table, fast));
    ASSERT_EQ(check.verdict, Verdict::ok) << check.detail << " decision set " << d;
  }
}

TEST(SimulatorAgreesWithChecker, OnRandomPrograms) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_agreement(testing::random_trace(seed, 6 + static_cast<int>(seed % 20)), seed, 20);
    if (HasFatalFailure()) return;
  }
}

TEST(SimulatorAgreesWithChecker, OnChainGptAndUnet) {
  expect_agreement(testing::chain_trace(20), 1, 50);
  expect_agreement(testing::gpt_trace({.layers = 2, .batch = 2, .sequence = 32, .width = 32}), 2,
                   50);
  expect_agreement(testing::unet_trace(3), 3, 50);
}

TEST(SimulatorAgreesWithChecker, KeepAllIsThePlainStep) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Trace trace = testing::random_trace(seed);
    const Simulator simulator(trace);
    const SimulationResult plain = simulator.simulate(DecisionTable(trace.storages.size()));
    EXPECT_EQ(plain.peak_requested_bytes, trace.peaks.requested_bytes) << seed;
    EXPECT_EQ(plain.peak_rounded_bytes, trace.peaks.rounded_bytes) << seed;
    EXPECT_EQ(plain.recompute_ns, 0) << seed;
  }
}

}  // namespace
}  // namespace lowtide::planner
