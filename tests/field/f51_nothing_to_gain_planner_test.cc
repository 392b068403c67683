// F51 (Megatron-LM#1300, pytorch#78731): recomputation that makes the peak higher, or saves
// nothing: an op that turns much into little, and regions of a single linear layer. Left alone
// here.
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "support/mib.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

// An embedding that gathers `wide` bytes to make `narrow` ones, then layers that save their input.
Trace gathers_much(int layers) {
  testing::TraceBuilder b("gather");
  const StorageId table = b.resident(8 * kMiB);
  std::vector<StorageId> values = {b.op1({.name = "embedding_bag",
                                          .ns = 50,
                                          .reads = {table},
                                          .creates = {kMiB},
                                          .temporaries = {64 * kMiB}})};
  std::vector<SaveId> saves;
  for (int i = 0; i < layers; ++i) {
    saves.push_back(b.pack(values.back()));
    const StorageId next =
        b.op1({.name = "linear", .ns = 1000, .reads = {values.back()}, .creates = {4 * kMiB}});
    b.release(values.back());
    values.push_back(next);
  }
  StorageId gradient = b.op1({.creates = {4 * kMiB}, .phase = Phase::backward});
  b.free(values.back());
  for (size_t i = saves.size(); i-- > 0;) {
    b.unpack(saves[i]);
    const StorageId next = b.op1({.name = "linear_backward",
                                  .ns = 2000,
                                  .reads = {gradient, values[i]},
                                  .creates = {4 * kMiB},
                                  .phase = Phase::backward});
    b.release(values[i]);
    b.drop_save(saves[i]);
    b.free(values[i]);
    b.free(gradient);
    gradient = next;
  }
  b.free(gradient);
  return b.finish();
}

// No plan drops what it could keep under the same peak.
void expect_no_useless_drop(const Trace& trace) {
  const Simulator simulator(trace);
  const Frontier frontier = build_frontier(trace);
  for (const FrontierPoint& point : frontier.points()) {
    for (const Decision& decision : point.decisions) {
      DecisionTable table(trace, point.decisions);
      table.action[static_cast<size_t>(decision.storage)] = Action::save;
      const SimulationResult without = simulator.simulate(table);
      EXPECT_TRUE(without.peak_rounded_bytes > point.predicted.peak_rounded_bytes ||
                  without.recompute_ns >= point.predicted.recompute_ns)
          << "storage " << decision.storage << " gains nothing at peak "
          << point.predicted.peak_rounded_bytes;
    }
  }
}

TEST(Field, F51AnEmbeddingThatMakesLittleOfMuchIsLeftAlone) {
  const Trace trace = gathers_much(8);
  const Frontier frontier = build_frontier(trace);
  for (const FrontierPoint& point : frontier.points()) {
    for (const Decision& decision : point.decisions) {
      const auto& storage = trace.storages[static_cast<size_t>(decision.storage)];
      EXPECT_NE(trace.ops[static_cast<size_t>(storage.writers.front())].name, "embedding_bag");
    }
    EXPECT_LE(point.predicted.peak_rounded_bytes, trace.peaks.rounded_bytes);
  }
  expect_no_useless_drop(trace);
}

TEST(Field, F51SingleLinearRegionsGainNothingAndAreNotDropped) {
  // A checkpoint around each layer stores each layer's input: all there is.
  Trace trace = testing::chain_trace(8, kMiB);
  for (OpId o = 0; o < 8; ++o) trace.blocks.push_back({o, o + 1});
  trace.validate();
  PlannerOptions options;
  options.strategies = {"uniform:1"};
  const Frontier by_layer = build_frontier(trace, options);
  EXPECT_TRUE(by_layer.points().front().decisions.empty());
  EXPECT_EQ(by_layer.smallest_peak_bytes(), trace.peaks.rounded_bytes);
  expect_no_useless_drop(trace);
}

}  // namespace
}  // namespace lowtide::planner
