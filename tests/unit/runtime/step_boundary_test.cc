// The rule by which a step of an untouched program ends.
#include "runtime/step_boundary.h"

#include <gtest/gtest.h>

namespace lowtide::runtime {
namespace {

TEST(StepBoundary, OptimizerCompletesTheStepWhateverRanBefore) {
  StepBoundary boundary;
  boundary.begin_step();
  for (int run = 0; run < 4; ++run) boundary.backward_ended();
  EXPECT_FALSE(boundary.complete());
  boundary.leaf_written();
  EXPECT_TRUE(boundary.complete());
  boundary.begin_step();
  EXPECT_FALSE(boundary.complete());
  EXPECT_FALSE(boundary.had_backward());
}

TEST(StepBoundary, WithoutWritesEachEngineRunBecomesAStep) {
  StepBoundary boundary;
  boundary.begin_step();
  for (int run = 1; run < StepBoundary::kMaxRuns; ++run) boundary.backward_ended();
  EXPECT_FALSE(boundary.complete());
  boundary.backward_ended();
  EXPECT_TRUE(boundary.complete());
  boundary.begin_step();
  EXPECT_FALSE(boundary.complete());
  boundary.backward_ended();
  EXPECT_TRUE(boundary.complete());
}

TEST(StepBoundary, AWriteBringsTheRuleOfWritesBack) {
  StepBoundary boundary;
  boundary.begin_step();
  for (int run = 0; run < StepBoundary::kMaxRuns; ++run) boundary.backward_ended();
  boundary.begin_step();
  boundary.backward_ended();
  boundary.leaf_written();
  boundary.begin_step();
  boundary.backward_ended();
  EXPECT_FALSE(boundary.complete());
}

}  // namespace
}  // namespace lowtide::runtime
