#include "core/trace_file.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "unit/core/random_values.h"

namespace lowtide {
namespace {

void expect_equal(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.settings.name, b.settings.name);
  EXPECT_EQ(a.settings.device, b.settings.device);
  EXPECT_EQ(a.settings.torch_version, b.settings.torch_version);
  EXPECT_EQ(a.settings.lowtide_version, b.settings.lowtide_version);
  EXPECT_EQ(a.settings.clock, b.settings.clock);
  EXPECT_EQ(a.settings.intra_op_threads, b.settings.intra_op_threads);
  EXPECT_EQ(a.settings.probe_steps, b.settings.probe_steps);
  EXPECT_EQ(a.settings.deterministic, b.settings.deterministic);
  EXPECT_EQ(a.step_ns, b.step_ns);
  EXPECT_EQ(a.watch_ns, b.watch_ns);
  EXPECT_EQ(a.exchange_ns, b.exchange_ns);
  EXPECT_EQ(a.outside_bytes, b.outside_bytes);
  EXPECT_EQ(a.peaks.requested_bytes, b.peaks.requested_bytes);
  EXPECT_EQ(a.peaks.rounded_bytes, b.peaks.rounded_bytes);
  EXPECT_EQ(a.peaks.reserved_bytes, b.peaks.reserved_bytes);
  EXPECT_EQ(a.peaks.device_total_bytes, b.peaks.device_total_bytes);
  EXPECT_EQ(a.peaks.measured, b.peaks.measured);
  EXPECT_EQ(a.quality.dropped_records, b.quality.dropped_records);
  EXPECT_EQ(a.quality.zero_stamped_records, b.quality.zero_stamped_records);
  EXPECT_EQ(a.quality.unattributed_share, b.quality.unattributed_share);
  EXPECT_EQ(a.quality.clock_drift_ns, b.quality.clock_drift_ns);
  EXPECT_EQ(a.events, b.events);
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) {
    const TraceOp &x = a.ops[i], &y = b.ops[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.phase, y.phase);
    EXPECT_EQ(x.graph, y.graph);
    EXPECT_EQ(x.host_ns, y.host_ns);
    EXPECT_EQ(x.device_ns, y.device_ns);
    EXPECT_EQ(x.samples, y.samples);
    EXPECT_EQ(x.iqr_ns, y.iqr_ns);
    EXPECT_EQ(x.replay_ns, y.replay_ns);
    EXPECT_EQ(x.workspace_bytes, y.workspace_bytes);
    EXPECT_EQ(x.key, y.key);
    EXPECT_EQ(x.shape_key, y.shape_key);
    EXPECT_EQ(x.flags, y.flags);
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.outputs, y.outputs);
    EXPECT_EQ(x.writes, y.writes);
  }
  ASSERT_EQ(a.storages.size(), b.storages.size());
  for (size_t i = 0; i < a.storages.size(); ++i) {
    const TraceStorage &x = a.storages[i], &y = b.storages[i];
    EXPECT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(x.rounded_bytes, y.rounded_bytes);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.resident, y.resident);
    EXPECT_EQ(x.recomputable, y.recomputable);
    EXPECT_EQ(x.keep_reason, y.keep_reason);
    EXPECT_EQ(x.writers, y.writers);
  }
  ASSERT_EQ(a.saves.size(), b.saves.size());
  for (size_t i = 0; i < a.saves.size(); ++i) {
    const TraceSave &x = a.saves[i], &y = b.saves[i];
    EXPECT_EQ(x.storage, y.storage);
    EXPECT_EQ(x.version, y.version);
    EXPECT_EQ(x.packed_by, y.packed_by);
    EXPECT_EQ(x.first_unpack, y.first_unpack);
    EXPECT_EQ(x.last_unpack, y.last_unpack);
    EXPECT_EQ(x.unpack_order, y.unpack_order);
    EXPECT_EQ(x.evicted_in_probe, y.evicted_in_probe);
  }
}

void expect_equal(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.trace_fingerprint, b.trace_fingerprint);
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.budget_bytes, b.budget_bytes);
  EXPECT_EQ(a.decisions, b.decisions);
  EXPECT_EQ(a.account.resident_bytes, b.account.resident_bytes);
  EXPECT_EQ(a.account.activation_bytes, b.account.activation_bytes);
  EXPECT_EQ(a.account.rounding_bytes, b.account.rounding_bytes);
  EXPECT_EQ(a.account.placement_bytes, b.account.placement_bytes);
  EXPECT_EQ(a.account.outside_bytes, b.account.outside_bytes);
  EXPECT_EQ(a.account.reserve_bytes, b.account.reserve_bytes);
  EXPECT_EQ(a.account.gradient_bytes, b.account.gradient_bytes);
  EXPECT_EQ(a.predicted.peak_requested_bytes, b.predicted.peak_requested_bytes);
  EXPECT_EQ(a.predicted.peak_rounded_bytes, b.predicted.peak_rounded_bytes);
  EXPECT_EQ(a.predicted.peak_reserved_bytes, b.predicted.peak_reserved_bytes);
  EXPECT_EQ(a.predicted.step_ns, b.predicted.step_ns);
  EXPECT_EQ(a.predicted.recompute_ns, b.predicted.recompute_ns);
  EXPECT_EQ(a.predicted.memory_ns, b.predicted.memory_ns);
  EXPECT_EQ(a.predicted.watch_ns, b.predicted.watch_ns);
  EXPECT_EQ(a.predicted.replayed_ops, b.predicted.replayed_ops);
  EXPECT_EQ(a.predicted.peak_event, b.predicted.peak_event);
  EXPECT_EQ(a.predicted.live_at_peak, b.predicted.live_at_peak);
  EXPECT_EQ(a.measured.verified, b.measured.verified);
  EXPECT_EQ(a.measured.compared, b.measured.compared);
  EXPECT_EQ(a.measured.mismatched, b.measured.mismatched);
  EXPECT_EQ(a.measured.peak_requested_bytes, b.measured.peak_requested_bytes);
  EXPECT_EQ(a.measured.peak_rounded_bytes, b.measured.peak_rounded_bytes);
  EXPECT_EQ(a.measured.peak_reserved_bytes, b.measured.peak_reserved_bytes);
  EXPECT_EQ(a.measured.step_ns, b.measured.step_ns);
  EXPECT_EQ(a.bound.lower_bound_ns, b.bound.lower_bound_ns);
  EXPECT_EQ(a.bound.gap, b.bound.gap);
  EXPECT_EQ(a.bound.space, b.bound.space);
}

TEST(TraceFileTest, RandomTracesReadBackEqualFieldByField) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Trace trace = test::random_trace(seed, static_cast<int>(seed % 40));
    expect_equal(trace_from_json(trace_to_json(trace)), trace);
  }
}

TEST(TraceFileTest, EmptyTraceReadsBack) {
  expect_equal(trace_from_json(trace_to_json(Trace())), Trace());
}

TEST(TraceFileTest, TextIsTheSameEveryTime) {
  const Trace trace = test::random_trace(5);
  EXPECT_EQ(trace_to_json(trace), trace_to_json(trace_from_json(trace_to_json(trace))));
}

TEST(TraceFileTest, FormatVersionAndUnitsComeFirst) {
  EXPECT_EQ(trace_to_json(Trace()).rfind("{\n\"format\": \"lowtide.trace\",\n\"version\": 1,\n"
                                         "\"units\": {\"bytes\": \"bytes\", \"time\": \"ns\"},\n",
                                         0),
            0U);
  EXPECT_EQ(plan_to_json(Plan()).rfind("{\n\"format\": \"lowtide.plan\",\n\"version\": 1,\n"
                                       "\"units\": {\"bytes\": \"bytes\", \"time\": \"ns\"},\n",
                                       0),
            0U);
}

TEST(TraceFileTest, NameThatIsNotUtf8IsWrittenWithReplacements) {
  Trace trace;
  trace.settings.name = "caf\xe9";
  EXPECT_EQ(trace_from_json(trace_to_json(trace)).settings.name, "caf\xef\xbf\xbd");
}

TEST(TraceFileTest, UnknownFieldsAreIgnored) {
  std::string text = trace_to_json(test::random_trace(3));
  text.insert(text.find("\"settings\": {") + 13, "\"later\": [1, {\"x\": null}], ");
  text.insert(text.rfind('}'), ", \"later\": {}");
  expect_equal(trace_from_json(text), test::random_trace(3));
}

TEST(TraceFileTest, WithoutWatchTimeItIsNotMeasured) {
  Trace trace = test::random_trace(3);
  trace.watch_ns = 12345;
  std::string text = trace_to_json(trace);
  const size_t at = text.find("\"watch_ns\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 10, "\"unknown_\"");
  EXPECT_EQ(trace_from_json(text).watch_ns, 0);
}

TEST(PlanFileTest, RandomPlansReadBackEqualFieldByField) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Plan plan = test::random_plan(seed);
    expect_equal(plan_from_json(plan_to_json(plan)), plan);
  }
  expect_equal(plan_from_json(plan_to_json(Plan())), Plan());
}

TEST(PlanFileTest, AbsentBoundIsNullInTheText) {
  EXPECT_NE(
      plan_to_json(Plan()).find(R"("bound": {"lower_bound_ns":null,"gap":null,"space":null})"),
      std::string::npos);
}

}  // namespace
}  // namespace lowtide
