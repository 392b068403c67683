// F06: recomputing a batch norm updated its running statistics twice; loss and gradients hide it.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F06RunningStatisticsMoveOncePerStep) {
  torch::nn::Sequential model{nullptr};
  const Program program = [&model]() -> StepFunction {
    begin_program();
    model = torch::nn::Sequential(torch::nn::Conv2d(4, 8, 3), torch::nn::BatchNorm2d(8),
                                  torch::nn::Conv2d(8, 8, 3));
    const Net net{model->parameters(), nullptr, model->buffers()};
    const at::Tensor x = torch::randn({8, 4, 16, 16});
    return [net, x, module = model](int) mutable {
      forget_gradients(net);
      const at::Tensor loss = module->forward(x).pow(2).mean();
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const StepFunction step_function = program();
  {
    Session session(options);
    const Chaos chaos(1, 3);
    for (int i = 1; i <= 3; ++i) {
      const Step step = session.step();
      step_function(i);
    }
    EXPECT_GT(session.stats().replayed_ops, 0);
  }
  EXPECT_EQ(model->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
