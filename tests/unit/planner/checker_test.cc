// The checker finds each kind of fault, by name.
#include "planner/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

class Checker : public ::testing::Test {
 protected:
  Checker() {
    const Frontier frontier = build_frontier(trace_);
    plan_ = make_plan(trace_, frontier, frontier.smallest_peak_bytes());
  }

  void expect(Verdict verdict, const std::string& detail) {
    const CheckResult result = check_plan(trace_, plan_);
    EXPECT_EQ(result.verdict, verdict) << to_string(result.verdict) << ": " << result.detail;
    EXPECT_THAT(result.detail, ::testing::HasSubstr(detail));
    EXPECT_EQ(static_cast<bool>(result), verdict == Verdict::ok);
  }

  Trace trace_ = testing::chain_trace(12);
  Plan plan_;
};

TEST_F(Checker, AcceptsThePlannersPlan) {
  ASSERT_FALSE(plan_.decisions.empty());
  expect(Verdict::ok, "");
  const CheckResult result = check_plan(trace_, plan_);
  EXPECT_EQ(result.peak_requested_bytes, plan_.predicted.peak_requested_bytes);
  EXPECT_EQ(result.recompute_ns, plan_.predicted.recompute_ns);
}

TEST_F(Checker, WrongTrace) {
  plan_.trace_fingerprint ^= 1;
  expect(Verdict::wrong_trace, fingerprint_text(trace_.fingerprint()));
}

TEST_F(Checker, UnknownStorage) {
  plan_.decisions.back().storage = 100000;
  expect(Verdict::unknown_storage, "100000");
  plan_.decisions.back().storage = -1;
  expect(Verdict::unknown_storage, "-1");
}

TEST_F(Checker, NotRecomputable) {
  TraceStorage& storage = trace_.storages[static_cast<size_t>(plan_.decisions[0].storage)];
  storage.recomputable = false;
  storage.keep_reason = "written by an opaque kernel";
  plan_.trace_fingerprint = trace_.fingerprint();
  expect(Verdict::not_recomputable, "written by an opaque kernel");
}

TEST_F(Checker, NotSaved) {
  StorageId unsaved = kNone;
  for (size_t s = 0; s < trace_.storages.size(); ++s) {
    bool saved = false;
    for (const TraceSave& save : trace_.saves) saved |= save.storage == static_cast<StorageId>(s);
    if (!saved) unsaved = static_cast<StorageId>(s);
  }
  ASSERT_NE(unsaved, kNone);
  plan_.decisions.push_back({unsaved, Action::drop, true});
  expect(Verdict::not_saved, std::to_string(unsaved));
}

TEST_F(Checker, OverBudget) {
  plan_.budget_bytes -= 1;
  expect(Verdict::over_budget, "the budget is");
  plan_.budget_bytes += 1;
  plan_.account.reserve_bytes = 1;
  expect(Verdict::over_budget, "reserve 1");
}

TEST_F(Checker, WrongPeak) {
  plan_.predicted.peak_requested_bytes -= 1;
  expect(Verdict::wrong_peak, "checked");
  plan_.predicted.peak_requested_bytes += 1;
  plan_.predicted.peak_reserved_bytes = plan_.predicted.peak_requested_bytes - 1;
  expect(Verdict::wrong_peak, "below the requested peak");
}

TEST_F(Checker, WrongTime) {
  plan_.predicted.recompute_ns += 1;
  expect(Verdict::wrong_time, "recompute");
  plan_.predicted.recompute_ns -= 1;
  plan_.predicted.step_ns += 1;
  expect(Verdict::wrong_time, "step");
  plan_.predicted.step_ns -= 1;
  plan_.predicted.watch_ns += 1;
  expect(Verdict::wrong_time, "watching");
}

TEST_F(Checker, AKeepBitTurnedIsNoticed) {
  bool noticed = false;
  for (Decision& decision : plan_.decisions) {
    decision.keep_after_recompute = !decision.keep_after_recompute;
    noticed |= !check_plan(trace_, plan_);
    decision.keep_after_recompute = !decision.keep_after_recompute;
  }
  EXPECT_TRUE(noticed);
}

TEST(Verdicts, HaveNames) {
  EXPECT_STREQ(to_string(Verdict::ok), "ok");
  EXPECT_STREQ(to_string(Verdict::over_budget), "over budget");
}

}  // namespace
}  // namespace lowtide::planner
