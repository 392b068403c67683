#include <algorithm>

#include "core/bytes.h"
#include "unit/cli/command_fixture.h"

namespace lowtide::cli {
namespace {

class ShowTest : public CommandTest {
 protected:
  // x (resident, 1 KiB) -> "slow" makes a (4 KiB, never dropped), "fast" makes b (2 KiB).
  void SetUp() override {
    CommandTest::SetUp();
    testing::TraceBuilder builder("two ops");
    const StorageId x = builder.resident(1024);
    const StorageId a = builder.op1({.name = "slow", .ns = 900, .reads = {x}, .creates = {4096}});
    const SaveId save_a = builder.pack(a);
    const StorageId b = builder.op1({.name = "fast", .ns = 100, .reads = {a}, .creates = {2048}});
    const SaveId save_b = builder.pack(b);
    builder.release(a);
    builder.release(b);
    builder.never_drop(a, "written by an opaque op");
    for (const auto& [save, storage] : {std::pair{save_b, b}, std::pair{save_a, a}}) {
      builder.unpack(save);
      (void)builder.op({.name = "back", .ns = 10, .reads = {storage}, .phase = Phase::backward});
      builder.release(storage);
      builder.drop_save(save);
      builder.free(storage);
    }
    trace_ = builder.finish();
    write("t.json", trace_);
  }

  Trace trace_;
};

TEST_F(ShowTest, TraceScreenNamesHoldersSlowOpsAndWhatMustBeKept) {
  const Outcome outcome = run("show t.json");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* part :
       {"trace of two ops, fingerprint ", "4: 2 forward, 2 backward, 0 optimizer, 0 other",
        "saved       6.0 KiB in 2 storages for backward; 2.0 KiB in 1 may be dropped",
        "biggest holders at the peak (7.0 KiB requested)", "activation of slow (forward op 0)",
        "slowest ops", "900 ns", "saved and cannot be dropped", "written by an opaque op"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  EXPECT_LT(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 45) << "not one screen";
}

TEST_F(ShowTest, TraceJsonHasTheSameFacts) {
  const nlohmann::json json = run("show t.json --json").json();
  EXPECT_EQ(json["kind"], "trace");
  EXPECT_EQ(json["fingerprint"], fingerprint_text(trace_.fingerprint()));
  EXPECT_EQ(json["ops"], 4);
  EXPECT_EQ(json["ops_ns"], 1020);
  EXPECT_EQ(json["saved_bytes"], 6144);
  EXPECT_EQ(json["droppable_bytes"], 2048);
  EXPECT_EQ(json["resident_bytes"], 1024);
  EXPECT_EQ(json["derived_peak_requested_bytes"], 7168);
  EXPECT_EQ(json["live_at_peak"][0]["bytes"], 4096);
  EXPECT_EQ(json["slowest"][0]["name"], "slow");
  EXPECT_EQ(json["kept"][0]["reason"], "written by an opaque op");
}

TEST_F(ShowTest, PlanScreenWithAndWithoutItsTrace) {
  Plan plan;
  plan.trace_fingerprint = trace_.fingerprint();
  plan.strategy = "greedy";
  plan.budget_bytes = 6000;
  plan.decisions = {{2, Action::drop, false}};
  plan.predicted.peak_reserved_bytes = 5900;
  plan.measured = {.verified = true, .compared = 1, .peak_reserved_bytes = 5800, .step_ns = 2000};
  plan.bound = {.lower_bound_ns = 100, .gap = 0.25, .space = "single"};
  write_plan(plan, folder_ / "p.json");
  const Outcome alone = run("show p.json");
  EXPECT_EQ(alone.exit_code, 0);
  for (const char* part : {"plan by greedy for trace ", "budget      5.9 KiB (6000 bytes)",
                           "1 storages compared, 0 differed", "gap 25.0 %", "left of the budget",
                           "dropped: 1 storages: 2", "--trace TRACE"}) {
    EXPECT_NE(alone.out.find(part), std::string::npos) << part << "\n" << alone.out;
  }
  const Outcome with_trace = run("show p.json --trace t.json");
  EXPECT_EQ(with_trace.exit_code, 0);
  for (const char* part : {"dropped: 1 storages, 2.0 KiB", "100 ns", "freed", "of fast"}) {
    EXPECT_NE(with_trace.out.find(part), std::string::npos) << part << "\n" << with_trace.out;
  }
  EXPECT_EQ(run("show p.json --json").out, text("p.json"));
}

TEST_F(ShowTest, WatchingIsShownWhereItWasMeasured) {
  EXPECT_EQ(run("show t.json").out.find("watching"), std::string::npos);
  trace_.watch_ns = 2500;
  write("w.json", trace_);
  EXPECT_NE(run("show w.json").out.find("; watching adds 2.50 us\n"), std::string::npos);
  EXPECT_EQ(run("show w.json --json").json()["watch_ns"], 2500);
  EXPECT_EQ(run("plan w.json --budget 1MiB -o p.json").exit_code, 0);
  EXPECT_NE(run("show p.json").out.find(", watching 2.50 us\n"), std::string::npos);
}

TEST_F(ShowTest, PlanWithAForeignTraceIsRefused) {
  Plan plan;
  plan.trace_fingerprint = 1;
  write_plan(plan, folder_ / "p.json");
  expect_error(run("show p.json --trace t.json"), 2, "belongs to trace 0000000000000001");
  plan.trace_fingerprint = trace_.fingerprint();
  plan.decisions = {{99, Action::drop, true}};
  write_plan(plan, folder_ / "p.json");
  expect_error(run("show p.json --trace t.json"), 2, "drops storage 99");
}

TEST_F(ShowTest, EmptyTraceAndControlCharactersDoNoHarm) {
  Trace empty;
  empty.settings.name = "\x1b[31mred\n";
  write("e.json", empty);
  const Outcome outcome = run("show e.json");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run("show e.json --json").exit_code, 0);
}

}  // namespace
}  // namespace lowtide::cli
