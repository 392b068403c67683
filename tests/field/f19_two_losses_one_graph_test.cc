// F19: two backwards through one graph; a recompute helper that works once only was switched off.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

Program two_losses() {
  return []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96}), parameter({96, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      const at::Tensor h = at::dropout(x.mm(net.parameters[0]).exp(), 0.1, true);
      const at::Tensor y = (h.sin() * h).mm(net.parameters[1]).tanh();
      y.mean().backward({}, /*retain_graph=*/true);
      const at::Tensor second = (y * y).mean() + h.mean();
      second.backward();
      descend(net);
      return observed(net, second);
    };
  };
}

TEST(Field, F19TwoBackwardsThroughOneGraph) { EXPECT_EQ(differences(two_losses()), ""); }

TEST(Field, F19RecomputationIsReported) {
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(smallest_budget(two_losses()));
  const SessionRun run = run_session(two_losses(), 9, options);
  EXPECT_EQ(run.observed, run_plain(two_losses(), 9));
  EXPECT_GT(run.steps.back().replayed_ops, 0);
  EXPECT_GT(run.stats.recompute_ns, 0);
}

}  // namespace
}  // namespace lowtide::testing
