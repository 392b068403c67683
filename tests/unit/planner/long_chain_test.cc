// Long chains: one decision more or less changes thousands of recomputed ops, and lives span the
// whole step. What is wanted ends, is right, and keeps its time limit. CPU seconds, generously.
#include <gtest/gtest.h>

#include <string>

#include "plan_of.h"
#include "planner/checker.h"
#include "planner/evaluator.h"
#include "planner/instance.h"
#include "planner/planner.h"
#include "planner/problem.h"
#include "planner/relaxation.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "support/cpu_seconds.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

#ifndef LOWTIDE_TIME_FACTOR
#define LOWTIDE_TIME_FACTOR 1
#endif
constexpr double kFactor = LOWTIDE_TIME_FACTOR;

// The compiled program of a chain: y[i] = f(y[i - 1]), all saved, read again in reverse.
Trace joint_chain(int length) {
  std::string tensors = R"({"bytes":1000,"input":true})";
  std::string forward, backward, saves;
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ",") + item;
  };
  const auto op = [](const std::string& inputs, int output) {
    return R"({"name":"op","inputs":[)" + inputs + R"(],"outputs":[)" + std::to_string(output) +
           R"(],"time_ns":10})";
  };
  for (int i = 1; i <= 2 * length; ++i) {
    append(tensors, R"({"bytes":)" + std::to_string(1000 + i % 7) + R"(,"input":false})");
  }
  for (int i = 1; i <= length; ++i) {
    append(forward, op(std::to_string(i - 1), i));
    append(saves, std::to_string(i));
    std::string inputs = std::to_string(length + 1 - i);
    if (i > 1) append(inputs, std::to_string(length + i - 1));
    append(backward, op(inputs, length + i));
  }
  return instance_from_json(R"({"format":"remat-instance","version":1,"tensors":[)" + tensors +
                            R"(],"forward":[)" + forward + R"(],"backward":[)" + backward +
                            R"(],"saves":[)" + saves + R"(],"gradient_outputs":[)" +
                            std::to_string(2 * length) + R"(],"forward_outputs":[]})");
}

class LongChain : public ::testing::TestWithParam<bool> {
 protected:
  static Trace chain(int length) {
    return GetParam() ? joint_chain(length) : testing::chain_trace(length);
  }
};

TEST_P(LongChain, ThousandsOfReplaysAreCountedRight) {
  const Trace trace = chain(3200);
  const Simulator simulator(trace);
  for (const Choice choice : {Choice::drop_keep, Choice::drop_once}) {
    const auto evaluator = make_evaluator(simulator);
    // With keep bits off every replay starts from the nearest kept value: here every 100th.
    int index = 0;
    for (const StorageId s : simulator.problem().candidates()) {
      if (choice == Choice::drop_keep || ++index % 100 != 0) evaluator->set(s, choice);
    }
    const SimulationResult result = simulator.simulate(evaluator->table());
    EXPECT_GE(result.replayed_ops, 3000);
    EXPECT_NO_THROW(evaluator->check(simulator));
    const CheckResult check = check_plan(trace, plan_of(trace, evaluator->table(), result));
    EXPECT_TRUE(check) << check.detail;
  }
}

TEST_P(LongChain, TheSearchKeepsItsTimeLimit) {
  const Trace trace = chain(20'000);
  const Simulator simulator(trace);
  for (const char* text : {"lowtide:seconds=2", "lowtide:seconds=2+peak=1000000"}) {
    Archive archive;
    const double start = testing::cpu_seconds();
    explore(text, simulator, archive);
    EXPECT_LE(testing::cpu_seconds() - start, 2.2 * kFactor) << text;
    EXPECT_FALSE(archive.entries().empty());
  }
}

// The plans of the points found are simulated after the search: as many as there is time for.
TEST_P(LongChain, AWholeFrontierKeepsItsTimeLimit) {
  const Trace trace = chain(20'000);
  PlannerOptions options;
  options.strategies = {"keep_all", "lowtide:seconds=2"};
  const double start = testing::cpu_seconds();
  const Frontier frontier = build_frontier(trace, options);
  EXPECT_LE(testing::cpu_seconds() - start, 2.2 * kFactor);
  EXPECT_GE(frontier.points().size(), kFactor > 1 ? 2U : 16U);
}

// Lives span the whole step: a bound that visits each of their moments takes minutes.
TEST_P(LongChain, BoundsAreFoundInTime) {
  const Trace trace = chain(GetParam() ? 100'000 : 20'000);
  for (const Space space : {Space::single, Space::general}) {
    const double start = testing::cpu_seconds();
    const Relaxation relaxation = relax(trace, space);
    EXPECT_LE(testing::cpu_seconds() - start, 12 * kFactor) << to_string(space);
    EXPECT_FALSE(relaxation.base_bytes.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LongChain, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "joint" : "eager"; });

}  // namespace
}  // namespace lowtide::planner
