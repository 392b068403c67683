// What a planner may be handed: each is a named error or a right answer, and nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/blocks.h"
#include "planner/checker.h"
#include "planner/instance.h"
#include "planner/planner.h"
#include "support/cpu_seconds.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.message();
  }
  return "";
}

std::string instance(const std::string& tensors, const std::string& forward,
                     const std::string& backward, const std::string& saves,
                     const std::string& gradients = "") {
  return R"({"format":"remat-instance","version":1,"tensors":[)" + tensors + R"(],"forward":[)" +
         forward + R"(],"backward":[)" + backward + R"(],"saves":[)" + saves +
         R"(],"gradient_outputs":[)" + gradients + R"(],"forward_outputs":[]})";
}

std::string tensor(const std::string& bytes, bool input = false) {
  return R"({"bytes":)" + bytes + R"(,"input":)" + (input ? "true}" : "false}");
}

std::string op(const std::string& inputs, const std::string& outputs,
               const std::string& time_ns = "10") {
  return R"({"name":"op","inputs":[)" + inputs + R"(],"outputs":[)" + outputs + R"(],"time_ns":)" +
         time_ns + "}";
}

// y[i] = f(y[i - 1]), all saved, read again in reverse.
Trace long_chain(int length) {
  testing::TraceBuilder b;
  std::vector<StorageId> values = {b.resident(1000)};
  std::vector<SaveId> saves;
  for (int i = 0; i < length; ++i) {
    values.push_back(b.op1({.reads = {values.back()}, .creates = {1000}}));
    saves.push_back(b.pack(values.back()));
    b.release(values.back());
  }
  for (int i = length; i-- > 0;) {
    const auto index = static_cast<size_t>(i);
    const StorageId value = values[index + 1];
    b.unpack(saves[index]);
    b.op({.reads = {value}, .phase = Phase::backward});
    b.release(value);
    b.drop_save(saves[index]);
    b.free(value);
  }
  return b.finish();
}

TEST(BadInput, InstancesThatCannotBeAreRefusedByName) {
  const std::string two = tensor("8", true) + "," + tensor("8") + "," + tensor("8");
  const struct {
    const char* what;
    std::string text;
    const char* message;
  } rows[] = {
      {"cycle", instance(two, op("2", "1") + "," + op("1", "2"), "", ""),
       "before an op has made it"},
      {"op that feeds itself", instance(two, op("1", "1"), "", ""), "before an op has made it"},
      {"missing producer", instance(two, op("0", "1"), op("2", ""), "1"),
       "before an op has made it"},
      {"unknown tensor", instance(two, op("0", "3"), "", ""), "not a tensor"},
      {"negative index", instance(two, op("-1", "1"), "", ""), "whole number"},
      {"made twice", instance(two, op("0", "1") + "," + op("0", "1"), "", ""), "two ops"},
      {"saved twice", instance(two, op("0", "1"), op("1", "2"), "1,1", "2"), "twice"},
      {"saved by nobody", instance(two, op("0", "1"), op("1", "2"), "2"), "no forward op"},
      {"negative bytes", instance(tensor("-8"), op("", "0"), "", ""), "whole number"},
      {"negative time", instance(tensor("8"), op("", "0", "-1"), "", ""), "whole number"},
      {"bytes of 2^63 - 1", instance(tensor("9223372036854775807"), op("", "0"), "", ""),
       "whole number"},
      {"bytes of 2^63", instance(tensor("9223372036854775808"), op("", "0"), "", ""),
       "whole number"},
      {"time of 2^63 - 1", instance(tensor("8"), op("", "0", "9223372036854775807"), "", ""),
       "whole number"},
      {"sum of bytes",
       instance(tensor("72057594037927936") + "," + tensor("1"), op("", "0,1"), "", ""), "2^56"},
      {"not an instance", "{}", "format: is missing"},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(refusal([&] { (void)instance_from_json(row.text); }),
                ::testing::HasSubstr(row.message))
        << row.what;
  }
}

TEST(BadInput, TracesThatCannotBeAreRefusedByName) {
  const Trace good = testing::chain_trace(4);
  const struct {
    const char* what;
    std::function<void(Trace&)> spoil;
    const char* message;
  } rows[] = {
      {"cycle", [](Trace& t) { t.ops[0].inputs.push_back({t.ops[2].outputs[0], 1}); },
       "written later"},
      {"missing producer", [](Trace& t) { t.storages[1].writers.clear(); }, "number of writers"},
      {"negative bytes", [](Trace& t) { t.storages[1].bytes = -1; }, "bytes is negative"},
      {"negative time", [](Trace& t) { t.ops[1].host_ns = -1; }, "time is negative"},
      {"overflow of bytes", [](Trace& t) { t.storages[1].rounded_bytes = INT64_MAX; }, "2^56"},
      {"overflow of time", [](Trace& t) { t.ops[1].device_ns = INT64_MAX; }, "2^56"},
      {"flops", [](Trace& t) { t.ops[1].flops = -1; }, "flops is negative"},
      {"allocated twice", [](Trace& t) { t.events.insert(t.events.begin() + 1, t.events[1]); },
       "alive"},
      {"op twice", [](Trace& t) { t.events.insert(t.events.begin(), t.events[0]); },
       "inside another"},
      {"block behind the ops", [](Trace& t) { t.blocks = {{3, 400}}; }, "behind the last op"},
      {"empty block", [](Trace& t) { t.blocks = {{1, 1}}; }, "is empty"},
      {"blocks that overlap", [](Trace& t) { t.blocks = {{0, 2}, {1, 3}}; }, "the one before"},
      {"block in the backward", [](Trace& t) { t.blocks = {{4, 5}}; }, "not of the forward"},
  };
  for (const auto& row : rows) {
    Trace trace = good;
    row.spoil(trace);
    EXPECT_THAT(refusal([&] { trace.validate(); }), ::testing::HasSubstr(row.message)) << row.what;
  }
}

TEST(BadInput, EmptyAndTinyGraphsArePlanned) {
  for (const std::string& text :
       {instance("", "", "", ""), instance(tensor("8", true), "", "", ""),
        instance(tensor("8", true) + "," + tensor("100"), op("0", "1"), "", ""),
        instance(tensor("0") + "," + tensor("0"), op("", "0", "0"), op("0", "1", "0"), "0", "1")}) {
    const Trace trace = instance_from_json(text);
    const Frontier frontier = build_frontier(trace);
    const int64_t smallest = frontier.smallest_peak_bytes();
    EXPECT_EQ(smallest, trace.peaks.rounded_bytes);
    EXPECT_TRUE(check_plan(trace, make_plan(trace, frontier, smallest)));
    if (smallest > 0) {
      EXPECT_THROW((void)make_plan(trace, frontier, 0), OutOfBudget);
    }
  }
  const Trace nothing;
  EXPECT_EQ(make_plan(nothing, build_frontier(nothing), 0).predicted.peak_reserved_bytes, 0);
}

TEST(BadInput, BudgetZeroNamesTheSmallestThatWorks) {
  const Trace trace = testing::chain_trace(5);
  const Frontier frontier = build_frontier(trace);
  try {
    (void)make_plan(trace, frontier, 0);
    FAIL() << "accepted";
  } catch (const OutOfBudget& error) {
    EXPECT_EQ(error.smallest_reachable_bytes(), frontier.smallest_peak_bytes());
  }
}

TEST(BadInput, SumsOverAStepThatWouldOverflowAreRefused) {
  Trace trace = testing::chain_trace(40);
  trace.storages[1].rounded_bytes = int64_t{1} << 55;
  EXPECT_THAT(refusal([&] { trace.validate(); }), ::testing::HasSubstr("2^62"));
}

// Sizes and times at the limit of what is accepted: sums over the step stay right.
TEST(BadInput, ValuesAtTheLimitDoNotOverflow) {
  const Trace chain = testing::chain_trace(60, (int64_t{1} << 44) - 512, int64_t{1} << 44);
  chain.validate();
  Trace trace = chain;
  trace.blocks = find_blocks(trace);
  for (const std::string& name : strategy_names()) {
    if (name == "selective") continue;  // no attention in it
    PlannerOptions options;
    options.strategies = {"keep_all", name};
    options.bound_work = 1'000'000;  // hundreds of bounds: small ones
    for (OpId o = 0; o < 60; ++o) trace.ops[static_cast<size_t>(o)].flops = INT64_MAX;
    const Frontier frontier = build_frontier(trace, options);
    for (const FrontierPoint& point : frontier.points()) {
      ASSERT_GE(point.predicted.recompute_ns, 0) << name;
      ASSERT_GT(point.predicted.peak_rounded_bytes, 0) << name;
      const int64_t budget = point.predicted.peak_reserved_bytes;
      ASSERT_TRUE(check_plan(trace, make_plan(trace, frontier, budget, options))) << name;
    }
  }
}

// A million ops: an answer or a refusal in bounded time. Seconds of one core, generously.
TEST(BadInput, AMillionOpsEndInTime) {
  Trace trace = long_chain(500'000);
  ASSERT_GE(trace.ops.size(), 1'000'000u);
  trace.blocks = find_blocks(trace);
  EXPECT_EQ(trace.blocks.size(), 500'000u);
  for (const char* name : {"sqrt", "knapsack", "chain_dp"}) {
    const double start = testing::cpu_seconds();
    try {
      const Frontier frontier =
          build_frontier(trace, {.strategies = {"keep_all", name}, .reserved_replay = {}});
      EXPECT_FALSE(frontier.points().empty());
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.message(), ::testing::HasSubstr("up to")) << name;
    }
    EXPECT_LT(testing::cpu_seconds() - start, 60) << name;
  }
}

}  // namespace
}  // namespace lowtide::planner
