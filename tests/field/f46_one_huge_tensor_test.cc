// F46: one huge tensor each step; its cached block got split by small ones, and the next step could
// not place it.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

constexpr int64_t kBudget = 8 * 1024 * 1024;

// About 60 % of the budget, of another length in every step, among many of about 1 %.
Program one_among_many() {
  return []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({200, 100});
    const Net net{{parameter({100, 100})}, nullptr};
    return [=](int step) {
      forget_gradients(net);
      at::Tensor h = x.mm(net.parameters[0]);
      for (int i = 0; i < 60; ++i) {
        h = i % 6 == 5 ? h.mm(net.parameters[0]) : (h * 1.01).sin();
      }
      at::Tensor largest;
      {
        const int64_t elements = kBudget * 6 / 10 / 4 - step * 4096;
        const at::Tensor huge = torch::full({elements}, 0.5);
        largest = huge.max();
      }
      const at::Tensor loss = (h * h.exp()).mean() * largest;
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
}

TEST(Field, F46HugeTensorFindsItsPlaceInEveryStep) {
  const Observed plain = run_plain(one_among_many(), 10);
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(kBudget);
  const SessionRun run = run_session(one_among_many(), 10, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.stats.steps_over_budget, 0);
  // Whole segments come and go: what is reserved beyond live blocks stays within a few slabs.
  for (const StepReport& step : run.steps) {
    EXPECT_LE(step.peak_reserved_bytes - step.peak_rounded_bytes, kBudget / 4) << step.index;
  }
  ASSERT_TRUE(run.plan.has_value());
  EXPECT_GE(run.plan->account.placement_bytes, 0);
}

}  // namespace
}  // namespace lowtide::testing
