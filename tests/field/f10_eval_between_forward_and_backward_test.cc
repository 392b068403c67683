// F10: a validation pass between forward and backward; the mode read at recompute time decided.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F10EvaluationBetweenForwardAndBackward) {
  const Program program = []() -> StepFunction {
    begin_program();
    torch::nn::Sequential model(torch::nn::Linear(96, 96), torch::nn::BatchNorm1d(96),
                                torch::nn::Dropout(0.3), torch::nn::Linear(96, 96));
    const Net net{model->parameters(), nullptr, model->buffers()};
    const at::Tensor x = torch::randn({64, 96});
    return [=](int) mutable {
      forget_gradients(net);
      const at::Tensor loss = model->forward(x).exp().mean();
      model->eval();
      at::Tensor validation;
      {
        const torch::NoGradGuard no_grad;
        validation = model->forward(x + 1).sum();
      }
      loss.backward();
      model->train();
      descend(net);
      return observed(net, loss + validation);
    };
  };
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
