#include "core/trace.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "unit/core/random_values.h"

namespace lowtide {
namespace {

// x (resident) -> op 0 makes y, y is packed -> op 1 reads y in backward. The smallest whole step.
Trace small_trace() {
  Trace trace;
  trace.settings.device = "cpu";
  trace.storages = {{.bytes = 64, .rounded_bytes = 64, .resident = true},
                    {.bytes = 128, .rounded_bytes = 128, .recomputable = true, .writers = {0}}};
  trace.ops = {{.name = "aten::exp", .host_ns = 5, .inputs = {{0, 0}}, .outputs = {1}},
               {.name = "aten::mul.Tensor", .phase = Phase::backward, .inputs = {{1, 1}}}};
  trace.saves = {{.storage = 1,
                  .version = 1,
                  .packed_by = 0,
                  .first_unpack = 1,
                  .last_unpack = 1,
                  .unpack_order = 0}};
  trace.events = {{EventKind::op_begin, 0},  {EventKind::alloc, 1},   {EventKind::op_end, 0},
                  {EventKind::pack, 0},      {EventKind::release, 1}, {EventKind::unpack, 0},
                  {EventKind::op_begin, 1},  {EventKind::op_end, 1},  {EventKind::release, 1},
                  {EventKind::drop_save, 0}, {EventKind::free, 1}};
  return trace;
}

TEST(TraceTest, SmallAndRandomTracesAreValid) {
  EXPECT_NO_THROW(Trace().validate());
  EXPECT_NO_THROW(small_trace().validate());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_NO_THROW(test::random_trace(seed).validate()) << seed;
  }
}

struct BrokenTrace {
  const char* name;
  std::function<void(Trace&)> damage;
  const char* text;  // part of the message
};

void PrintTo(const BrokenTrace& broken, std::ostream* out) { *out << broken.name; }

class BrokenTraceTest : public testing::TestWithParam<BrokenTrace> {};

TEST_P(BrokenTraceTest, IsRefusedByName) {
  Trace trace = small_trace();
  GetParam().damage(trace);
  try {
    trace.validate();
    FAIL() << "accepted";
  } catch (const FileError& error) {
    EXPECT_NE(error.message().find(GetParam().text), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("Fix:"), std::string::npos);
  }
}

void add_event(Trace& t, size_t at, EventKind kind, int32_t id) {
  t.events.insert(t.events.begin() + static_cast<long>(at), {kind, id});
}
void remove_event(Trace& t, size_t at) { t.events.erase(t.events.begin() + static_cast<long>(at)); }

INSTANTIATE_TEST_SUITE_P(
    , BrokenTraceTest,
    testing::Values(
        BrokenTrace{"NegativeStepTime", [](Trace& damaged) { damaged.step_ns = -1; },
                    "step_ns: is negative"},
        BrokenTrace{"NegativeOutside", [](Trace& damaged) { damaged.outside_bytes = -1; },
                    "outside_bytes"},
        BrokenTrace{"NegativePeak", [](Trace& damaged) { damaged.peaks.reserved_bytes = -1; },
                    "reserved_bytes"},
        BrokenTrace{"HugePeak", [](Trace& damaged) { damaged.peaks.reserved_bytes = INT64_MAX; },
                    "above 2^56"},
        BrokenTrace{"NanShare",
                    [](Trace& damaged) { damaged.quality.unattributed_share = 0.0 / 0.0; },
                    "unattributed"},
        BrokenTrace{"ShareAboveOne",
                    [](Trace& damaged) { damaged.quality.unattributed_share = 1.5; },
                    "unattributed"},
        BrokenTrace{"NoThreads", [](Trace& damaged) { damaged.settings.intra_op_threads = 0; },
                    "intra_op_threads"},
        BrokenTrace{"NegativeBytes", [](Trace& damaged) { damaged.storages[1].bytes = -1; },
                    "storages[1]: bytes"},
        BrokenTrace{"RoundedDown", [](Trace& damaged) { damaged.storages[1].rounded_bytes = 127; },
                    "rounded_bytes"},
        BrokenTrace{"SumOfBytesOverflows",
                    [](Trace& damaged) {
                      damaged.storages[0].rounded_bytes = int64_t{1} << 56;
                      damaged.storages[1].rounded_bytes = INT64_MAX;
                    },
                    "storages[1]: all storages"},
        BrokenTrace{"WriterIsNoOp", [](Trace& damaged) { damaged.storages[1].writers = {2}; },
                    "not an op"},
        BrokenTrace{"WritersOutOfOrder",
                    [](Trace& damaged) { damaged.storages[1].writers = {0, 0}; }, "order"},
        BrokenTrace{"NamelessOp", [](Trace& damaged) { damaged.ops[0].name.clear(); },
                    "ops[0]: has no name"},
        BrokenTrace{"NegativeTime", [](Trace& damaged) { damaged.ops[1].device_ns = -1; },
                    "ops[1]: a time"},
        BrokenTrace{"SumOfTimesOverflows",
                    [](Trace& damaged) {
                      damaged.ops[0].host_ns = damaged.ops[1].host_ns = int64_t{1} << 56;
                    },
                    "ops[1]: all op times"},
        BrokenTrace{"NegativeSamples", [](Trace& damaged) { damaged.ops[1].samples = -1; },
                    "samples"},
        BrokenTrace{"NegativeWorkspace",
                    [](Trace& damaged) { damaged.ops[1].workspace_bytes = -1; }, "workspace"},
        BrokenTrace{"InputIsNoStorage",
                    [](Trace& damaged) { damaged.ops[0].inputs[0].storage = 2; }, "input"},
        BrokenTrace{"NegativeInput", [](Trace& damaged) { damaged.ops[0].inputs[0].storage = -1; },
                    "input"},
        BrokenTrace{"InputVersionTooHigh",
                    [](Trace& damaged) { damaged.ops[1].inputs[0].version = 2; }, "version"},
        BrokenTrace{"ReadsItsOwnResult", [](Trace& damaged) { damaged.ops[0].inputs = {{1, 1}}; },
                    "written later"},
        BrokenTrace{"OutputIsNoStorage", [](Trace& damaged) { damaged.ops[0].outputs = {9}; },
                    "output"},
        BrokenTrace{"WriteIsNoStorage", [](Trace& damaged) { damaged.ops[0].writes = {9}; },
                    "writes"},
        BrokenTrace{"RecipeWithoutWriters",
                    [](Trace& damaged) {
                      damaged.storages[1].writers.clear();
                      damaged.ops[1].inputs.clear();
                      damaged.saves[0].version = 0;
                    },
                    "no writers"},
        BrokenTrace{"RecipeOfAResident",
                    [](Trace& damaged) { damaged.storages[1].resident = true; }, "resident"},
        BrokenTrace{"CreatorDoesNotCreate", [](Trace& damaged) { damaged.ops[0].outputs.clear(); },
                    "create it"},
        BrokenTrace{"WriterDoesNotWrite",
                    [](Trace& damaged) { damaged.storages[1].writers = {0, 1}; }, "write it"},
        BrokenTrace{"SaveOfNoStorage", [](Trace& damaged) { damaged.saves[0].storage = 2; },
                    "saves[0]: storage"},
        BrokenTrace{"SaveVersionTooHigh", [](Trace& damaged) { damaged.saves[0].version = 2; },
                    "version"},
        BrokenTrace{"PackedByNoOp", [](Trace& damaged) { damaged.saves[0].packed_by = 2; },
                    "packed_by"},
        BrokenTrace{"UnpackOutside", [](Trace& damaged) { damaged.saves[0].last_unpack = 3; },
                    "outside the step"},
        BrokenTrace{"FirstAfterLast", [](Trace& damaged) { damaged.saves[0].first_unpack = 2; },
                    "contradict"},
        BrokenTrace{"OrderWithoutUnpack",
                    [](Trace& damaged) { damaged.saves[0].unpack_order = kNone; }, "contradict"},
        BrokenTrace{"OrderOutOfRange", [](Trace& damaged) { damaged.saves[0].unpack_order = 1; },
                    "out of range"},
        BrokenTrace{"OrderTwice", [](Trace& damaged) { damaged.saves.push_back(damaged.saves[0]); },
                    "twice"},
        BrokenTrace{"NestedOps",
                    [](Trace& damaged) { add_event(damaged, 1, EventKind::op_begin, 1); },
                    "inside"},
        BrokenTrace{"OpsOutOfOrder", [](Trace& damaged) { damaged.events[0].id = 1; },
                    "their order"},
        BrokenTrace{"OpOutOfRange", [](Trace& damaged) { damaged.events[0].id = 2; },
                    "op does not exist"},
        BrokenTrace{"EndsAnotherOp", [](Trace& damaged) { damaged.events[2].id = 1; },
                    "not running"},
        BrokenTrace{"EndsTwice",
                    [](Trace& damaged) { add_event(damaged, 3, EventKind::op_end, 0); },
                    "not running"},
        BrokenTrace{"NegativeEnd", [](Trace& damaged) { damaged.events[2].id = kNone; },
                    "not running"},
        BrokenTrace{"NeverEnds", [](Trace& damaged) { remove_event(damaged, 7); }, "never ends"},
        BrokenTrace{"OpWithoutEvents",
                    [](Trace& damaged) {
                      remove_event(damaged, 7);
                      remove_event(damaged, 6);
                    },
                    "ops[1]: has no events"},
        BrokenTrace{"AllocOfALiveStorage",
                    [](Trace& damaged) { add_event(damaged, 2, EventKind::alloc, 1); }, "alive"},
        BrokenTrace{"AllocOfAResident",
                    [](Trace& damaged) { add_event(damaged, 2, EventKind::alloc, 0); }, "alive"},
        BrokenTrace{"AllocTwice",
                    [](Trace& damaged) { damaged.events.push_back({EventKind::alloc, 1}); },
                    "second"},
        BrokenTrace{"FreeTwice",
                    [](Trace& damaged) { damaged.events.push_back({EventKind::free, 1}); },
                    "not alive"},
        BrokenTrace{"StorageOutOfRange", [](Trace& damaged) { damaged.events[1].id = 2; },
                    "does not exist"},
        BrokenTrace{"ReleaseOfTheDead",
                    [](Trace& damaged) { damaged.events.push_back({EventKind::release, 1}); },
                    "events[11]: releases"},
        BrokenTrace{"PackTwice", [](Trace& damaged) { add_event(damaged, 4, EventKind::pack, 0); },
                    "second time"},
        BrokenTrace{"PackOfTheDead", [](Trace& damaged) { remove_event(damaged, 1); },
                    "packs a storage"},
        BrokenTrace{"UnpackBeforePack",
                    [](Trace& damaged) { std::swap(damaged.events[3], damaged.events[5]); },
                    "before it is packed"},
        BrokenTrace{"UnpackAfterDrop",
                    [](Trace& damaged) { damaged.events.push_back({EventKind::unpack, 0}); },
                    "after it was dropped"},
        BrokenTrace{"UnpackOfTheDead",
                    [](Trace& damaged) { add_event(damaged, 5, EventKind::free, 1); },
                    "unpacks a storage"},
        BrokenTrace{"SaveOutOfRange", [](Trace& damaged) { damaged.events[3].id = -5; },
                    "save does not exist"},
        BrokenTrace{"NeverPacked",
                    [](Trace& damaged) {
                      remove_event(damaged, 9);
                      remove_event(damaged, 5);
                      remove_event(damaged, 3);
                    },
                    "never packed"},
        BrokenTrace{"UnpackEventMissing", [](Trace& damaged) { remove_event(damaged, 5); },
                    "first_unpack"},
        BrokenTrace{"UnknownKind",
                    [](Trace& damaged) { damaged.events[0].kind = static_cast<EventKind>(9); },
                    "unknown kind"}),
    [](const auto& test) { return test.param.name; });

TEST(TraceTest, StorageOfZeroBytesIsPackedWithoutEverBeingAllocated) {
  Trace trace = small_trace();
  trace.storages[1].bytes = trace.storages[1].rounded_bytes = 0;
  std::erase_if(trace.events, [](const TraceEvent& e) {
    return e.kind == EventKind::alloc || e.kind == EventKind::free;
  });
  EXPECT_NO_THROW(trace.validate());
}

TEST(FingerprintTest, DoesNotDependOnMeasuredValuesOrTheName) {
  Trace trace = small_trace();
  const uint64_t before = trace.fingerprint();
  trace.settings.name = "another";
  trace.settings.probe_steps = 9;
  trace.settings.clock = "wall";
  trace.ops[0].host_ns = 99;
  trace.peaks.reserved_bytes = 5;
  trace.step_ns = 77;
  EXPECT_EQ(trace.fingerprint(), before);
}

TEST(FingerprintTest, DependsOnEverySettingThatChangesNumbersAndOnEveryKey) {
  const std::function<void(Trace&)> changes[] = {
      [](Trace& t) { t.settings.device = "cuda:0"; },
      [](Trace& t) { t.settings.torch_version = "2.11"; },
      [](Trace& t) { t.settings.intra_op_threads = 2; },
      [](Trace& t) { t.settings.deterministic = true; },
      [](Trace& t) { t.ops[0].key = 1; },
      [](Trace& t) { t.ops[1].shape_key = 1; },
      [](Trace& t) { t.ops.pop_back(); },
  };
  const uint64_t before = small_trace().fingerprint();
  for (const auto& change : changes) {
    Trace trace = small_trace();
    change(trace);
    EXPECT_NE(trace.fingerprint(), before);
  }
}

TEST(FingerprintTest, TextIsSixteenHexDigits) {
  EXPECT_EQ(fingerprint_text(0), "0000000000000000");
  EXPECT_EQ(fingerprint_text(0x0123456789abcdefULL), "0123456789abcdef");
  EXPECT_EQ(fingerprint_text(UINT64_MAX), "ffffffffffffffff");
}

TEST(TraceNamesTest, EveryEnumValueHasItsOwnName) {
  EXPECT_STREQ(to_string(Phase::optimizer), "optimizer");
  EXPECT_STREQ(to_string(StorageKind::optimizer_state), "optimizer_state");
  EXPECT_STREQ(to_string(EventKind::drop_save), "drop_save");
  EXPECT_STREQ(to_string(static_cast<Phase>(200)), "unknown");
  EXPECT_STREQ(to_string(static_cast<StorageKind>(200)), "unknown");
  EXPECT_STREQ(to_string(static_cast<EventKind>(200)), "unknown");
}

}  // namespace
}  // namespace lowtide
