#include "core/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/error.h"
#include "unit/core/random_values.h"

namespace lowtide {
namespace {

TEST(PlanTest, DefaultAndRandomPlansAreValid) {
  EXPECT_NO_THROW(Plan().validate());
  for (uint64_t seed = 0; seed < 100; ++seed) EXPECT_NO_THROW(test::random_plan(seed).validate());
}

TEST(PlanTest, ActionsHaveNames) {
  EXPECT_STREQ(to_string(Action::save), "save");
  EXPECT_STREQ(to_string(Action::drop), "drop");
  EXPECT_STREQ(to_string(static_cast<Action>(9)), "unknown");
}

struct BrokenPlan {
  const char* text;
  std::function<void(Plan&)> damage;
};

TEST(PlanTest, EachBrokenInvariantIsNamed) {
  const BrokenPlan cases[] = {
      {"budget_bytes", [](Plan& p) { p.budget_bytes = -1; }},
      {"account.rounding_bytes", [](Plan& p) { p.account.rounding_bytes = -1; }},
      {"decisions[0]: storage is negative",
       [](Plan& p) { p.decisions = {{kNone, Action::drop, true}}; }},
      {"decisions[1]: storages are not in rising order",
       [](Plan& p) { p.decisions = {{3, Action::drop, true}, {3, Action::drop, true}}; }},
      {"decisions[0]: only dropped", [](Plan& p) { p.decisions = {{3, Action::save, true}}; }},
      {"predicted.step_ns", [](Plan& p) { p.predicted.step_ns = -1; }},
      {"predicted.peak_event", [](Plan& p) { p.predicted.peak_event = -2; }},
      {"predicted.live_at_peak[1]", [](Plan& p) { p.predicted.live_at_peak = {0, -1}; }},
      {"measured.compared", [](Plan& p) { p.measured.compared = -1; }},
      {"bound.lower_bound_ns", [](Plan& p) { p.bound.lower_bound_ns = -2; }},
      {"bound.gap", [](Plan& p) { p.bound.gap = std::numeric_limits<double>::quiet_NaN(); }},
      {"bound.gap", [](Plan& p) { p.bound.gap = std::numeric_limits<double>::infinity(); }},
      {"bound.gap", [](Plan& p) { p.bound.gap = -0.5; }},
  };
  for (const BrokenPlan& broken : cases) {
    Plan plan;
    broken.damage(plan);
    try {
      plan.validate();
      ADD_FAILURE() << "accepted: " << broken.text;
    } catch (const FileError& error) {
      EXPECT_NE(error.message().find(broken.text), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace lowtide
