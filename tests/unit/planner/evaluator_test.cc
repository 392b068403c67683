// Incremental figures are the simulator's, after any sequence of choices.
#include "planner/evaluator.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "planner/instance.h"
#include "planner/problem.h"
#include "support/synthetic_instance.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

void expect_simulated_state(const Trace& trace, uint64_t seed, int moves) {
  const Simulator simulator(trace);
  const std::unique_ptr<Evaluator> evaluator = make_evaluator(simulator);
  const auto& candidates = simulator.problem().candidates();
  ASSERT_NO_THROW(evaluator->check(simulator));
  if (candidates.empty()) return;
  std::mt19937_64 random(seed);
  // Runs of drops and of undrops: both crowded and empty states are seen.
  for (int move = 0; move < moves; ++move) {
    const bool crowded = (move / 40) % 2 == 0;
    const StorageId s = candidates[random() % candidates.size()];
    const Choice other = random() % 3 == 0 ? Choice::drop_once : Choice::drop_keep;
    const Choice choice = (random() % 4 == 0) == crowded ? Choice::save : other;
    evaluator->set(s, choice);
    ASSERT_EQ(evaluator->choice(s), choice);
    ASSERT_NO_THROW(evaluator->check(simulator)) << "move " << move;
  }
  const int64_t peak = evaluator->peak_bytes();
  EXPECT_EQ(evaluator->excess(peak), 0);
  EXPECT_GT(evaluator->excess(peak - 1), 0);
  EXPECT_GT(evaluator->work(), 0);
}

TEST(Evaluator, IsTheSimulatorOnRandomInstances) {
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int ops = 3 + static_cast<int>(seed % 14);
    expect_simulated_state(instance_from_json(testing::random_instance(seed, ops)), seed, 120);
  }
}

TEST(Evaluator, IsTheSimulatorOnRandomPrograms) {
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_simulated_state(testing::random_trace(seed, 6 + static_cast<int>(seed % 20)), seed, 120);
  }
}

TEST(Evaluator, IsTheSimulatorOnModels) {
  expect_simulated_state(testing::gpt_trace({.layers = 3, .sequence = 32, .width = 32}), 1, 400);
  expect_simulated_state(testing::unet_trace(3), 2, 200);
  expect_simulated_state(testing::chain_trace(20), 3, 200);
  if (testing::shared_instances().empty()) return;
  for (const char* name : {"gpt12", "llama12", "resnet50", "unet", "vit_b"}) {
    SCOPED_TRACE(name);
    expect_simulated_state(
        read_instance(testing::shared_instances() / (std::string(name) + ".json")), 1, 200);
  }
}

}  // namespace
}  // namespace lowtide::planner
