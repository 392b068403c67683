// F50 (weathernext#7): "only reduced to 86 GiB": a warning, then out of memory. A budget below what
// the parameters and the largest op take is refused with the smallest one that works, in bytes.
#include <gtest/gtest.h>

#include "core/error.h"
#include "planner/checker.h"
#include "planner/planner.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

TEST(Field, F50BudgetBelowTheFloorIsRefusedWithOneThatWorks) {
  constexpr int64_t kParameters = 64 << 20;
  constexpr int64_t kLargestOp = 48 << 20;
  testing::TraceBuilder b;
  const StorageId weight = b.resident(kParameters);
  StorageId x = b.op1({.reads = {weight}, .creates = {kLargestOp / 2}});
  const SaveId save = b.pack(x);
  b.free(b.op1({.reads = {x, weight}, .creates = {16}, .temporaries = {kLargestOp / 2}}));
  b.release(x);
  b.unpack(save);
  b.free(b.op1({.reads = {x}, .creates = {16}, .phase = Phase::backward}));
  b.release(x);
  b.drop_save(save);
  b.free(x);
  const Trace trace = b.finish();
  const Frontier frontier = build_frontier(trace);
  for (const int64_t budget : {int64_t{0}, int64_t{1}, kParameters, kParameters + kLargestOp - 1}) {
    try {
      (void)make_plan(trace, frontier, budget);
      FAIL() << "budget " << budget << " was accepted";
    } catch (const OutOfBudget& error) {
      const int64_t smallest = error.smallest_reachable_bytes();
      EXPECT_GE(smallest, kParameters + kLargestOp);
      EXPECT_NE(error.message().find(std::to_string(smallest) + " bytes"), std::string::npos);
      EXPECT_TRUE(check_plan(trace, make_plan(trace, frontier, smallest)));
    }
  }
}

}  // namespace
}  // namespace lowtide::planner
