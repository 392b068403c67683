// Instances: what is read, and that the joint walk tells what their optima were proven for.
#include "planner/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/trace_file.h"
#include "planner/checker.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "support/synthetic_instance.h"

namespace lowtide::planner {
namespace {

// Tensors: 0 input; 1 = f(0) saved, 2 = g(1) saved, 3 = h(2) output, 4 = only for the backward
// (saved), 5..7 gradients.
constexpr char kSmall[] = R"({"format": "remat-instance", "version": 1,
  "tensors": [{"bytes": 1000, "input": true}, {"bytes": 100, "input": false},
    {"bytes": 40, "input": false}, {"bytes": 1, "input": false}, {"bytes": 30, "input": false},
    {"bytes": 10, "input": false}, {"bytes": 20, "input": false}, {"bytes": 5, "input": false}],
  "forward": [{"name": "f", "inputs": [0], "outputs": [1], "time_ns": 7},
    {"name": "g", "inputs": [1], "outputs": [2], "time_ns": 5},
    {"name": "cast_1", "inputs": [2], "outputs": [4], "time_ns": 3},
    {"name": "h", "inputs": [2], "outputs": [3], "time_ns": 2}],
  "backward": [{"name": "dh", "inputs": [3, 4], "outputs": [5], "time_ns": 11},
    {"name": "dg", "inputs": [5, 2], "outputs": [6], "time_ns": 13},
    {"name": "df", "inputs": [6, 1], "outputs": [7], "time_ns": 17}],
  "saves": [1, 2, 4], "gradient_outputs": [7], "forward_outputs": [3]})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

SimulationResult simulate_drops(const Trace& trace, const std::vector<Decision>& decisions) {
  const SimulationResult result = Simulator(trace).simulate(DecisionTable(trace, decisions));
  Plan plan;
  plan.trace_fingerprint = trace.fingerprint();
  plan.decisions = decisions;
  const CheckResult check = check_plan(trace, plan);
  EXPECT_EQ(check.peak_requested_bytes, result.peak_requested_bytes);
  EXPECT_EQ(check.recompute_ns, result.recompute_ns);
  return result;
}

TEST(Instance, KeepAllIsItsPlainStep) {
  const Trace trace = instance_from_json(kSmall);
  EXPECT_EQ(trace.step_ns, 7 + 5 + 3 + 2 + 11 + 13 + 17);
  EXPECT_EQ(trace.peaks.requested_bytes, 100 + 40 + 30 + 1 + 10);  // in dh
  EXPECT_EQ(simulate_drops(trace, {}).recompute_ns, 0);
  EXPECT_THAT(Problem(trace).candidates(), ::testing::ElementsAre(1, 2, 4));
}

TEST(Instance, WhatOnlyTheBackwardNeedsMovesThereForFree) {
  const Trace trace = instance_from_json(kSmall);
  const SimulationResult result = simulate_drops(trace, {{4, Action::drop, true}});
  EXPECT_EQ(result.recompute_ns, 0);
  EXPECT_EQ(result.replayed_ops, 1);
}

TEST(Instance, ADroppedSaveTakesItsDroppedAncestorsAlong) {
  const Trace trace = instance_from_json(kSmall);
  const SimulationResult result =
      simulate_drops(trace, {{1, Action::drop, true}, {2, Action::drop, true}});
  EXPECT_EQ(result.recompute_ns, 7 + 5);
  EXPECT_EQ(result.peak_requested_bytes, 1 + 10 + 100 + 40 + 20);  // in dg, 1 waits for df
}

TEST(Instance, WithoutTheKeepBitAValueIsRecomputedBySlot) {
  const Trace trace = instance_from_json(kSmall);
  const SimulationResult result =
      simulate_drops(trace, {{1, Action::drop, false}, {2, Action::drop, true}});
  EXPECT_EQ(result.recompute_ns, 7 + 5 + 7);
  EXPECT_EQ(result.peak_requested_bytes, 1 + 10 + 100 + 40);  // in g again, before dg
}

TEST(Instance, IsTheSameTraceAfterATripThroughAFile) {
  const Trace trace = instance_from_json(kSmall);
  const Trace again = trace_from_json(trace_to_json(trace));
  EXPECT_EQ(again.execution, Execution::joint);
  EXPECT_EQ(again.fingerprint(), trace.fingerprint());
  EXPECT_EQ(trace_to_json(again), trace_to_json(trace));
}

TEST(Instance, FaultsAreNamed) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)instance_from_json(text, "x.json");
    } catch (const FileError& error) {
      return error.message();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal(with(kSmall, "remat-instance", "other")), HasSubstr("must be \"remat-"));
  EXPECT_THAT(refusal(with(kSmall, "\"version\": 1", "\"version\": 2")), HasSubstr("version: 2"));
  EXPECT_THAT(refusal(with(kSmall, "\"inputs\": [0]", "\"inputs\": [2]")),
              HasSubstr("forward[0].inputs[0]: 2 is read before"));
  EXPECT_THAT(refusal(with(kSmall, "\"inputs\": [0]", "\"inputs\": [99]")),
              HasSubstr("is not a tensor"));
  EXPECT_THAT(refusal(with(kSmall, "\"outputs\": [2]", "\"outputs\": [1]")),
              HasSubstr("made by two ops"));
  EXPECT_THAT(refusal(with(kSmall, "\"outputs\": [2]", "\"outputs\": [0]")),
              HasSubstr("is an input"));
  EXPECT_THAT(refusal(with(kSmall, "\"saves\": [1", "\"saves\": [5")),
              HasSubstr("saves[0]: 5 is made by no forward op"));
  EXPECT_THAT(refusal(with(kSmall, "\"saves\": [1, 2", "\"saves\": [1, 1")),
              HasSubstr("listed twice"));
  EXPECT_THAT(refusal(with(kSmall, "\"time_ns\": 7", "\"time_ns\": -7")),
              HasSubstr("forward[0].time_ns"));
  EXPECT_THAT(refusal(with(kSmall, "\"bytes\": 100,", "\"bytes\": 9223372036854775807,")),
              HasSubstr("tensors[1].bytes"));
  EXPECT_THAT(refusal("{"), HasSubstr("x.json"));
}

TEST(Instance, SharedOnesHaveThePlainStepOfTheirOptima) {
  for (const testing::Optimum& row : testing::shared_optima()) {
    const Trace trace = read_problem(testing::shared_instances() / (row.instance + ".json"));
    EXPECT_EQ(trace.step_ns, row.plain_ns) << row.instance;
    EXPECT_EQ(trace.peaks.requested_bytes, row.plain_peak_bytes) << row.instance;
  }
}

void expect_checker_agrees(const Trace& trace, uint64_t seed, int sets) {
  const Simulator simulator(trace);
  std::mt19937_64 random(seed);
  for (int i = 0; i < sets; ++i) {
    DecisionTable table(trace.storages.size());
    const uint64_t odds = 1 + random() % 8;
    for (const StorageId s : simulator.problem().candidates()) {
      if (random() % 8 < odds) table.action[static_cast<size_t>(s)] = Action::drop;
      table.keep[static_cast<size_t>(s)] = random() % 3 != 0;
    }
    const SimulationResult result = simulate_drops(trace, table.to_decisions());
    const SimulationResult recorded =
        simulator.simulate(table, {.record_memory_events = true, .record_live_set = true});
    ASSERT_EQ(recorded.peak_requested_bytes, result.peak_requested_bytes);
    int64_t live = 0;
    int64_t peak = 0;
    for (const SimulatedMemoryEvent& event : recorded.memory_events) {
      peak = std::max(peak, live += event.bytes);
    }
    ASSERT_EQ(peak, result.peak_rounded_bytes);
    int64_t at_peak = 0;
    for (const StorageId s : recorded.live_at_peak) {
      at_peak += trace.storages[static_cast<size_t>(s)].bytes;
    }
    ASSERT_EQ(at_peak, result.peak_requested_bytes);
  }
}

TEST(Instance, SimulatorAgreesWithCheckerOnRandomOnes) {
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int ops = 3 + static_cast<int>(seed % 12);
    expect_checker_agrees(instance_from_json(testing::random_instance(seed, ops)), seed, 20);
  }
}

TEST(Instance, SimulatorAgreesWithCheckerOnSharedOnes) {
  if (testing::shared_instances().empty()) return;
  for (const char* name : {"gpt12", "llama12", "resnet50", "unet", "vit_b"}) {
    SCOPED_TRACE(name);
    expect_checker_agrees(
        read_instance(testing::shared_instances() / (std::string(name) + ".json")), 1, 3);
  }
}

}  // namespace
}  // namespace lowtide::planner
