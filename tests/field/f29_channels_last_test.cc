// F29: channels_last through a recomputed part; strides of activations and gradients must survive.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

at::Tensor strides_of(const at::Tensor& tensor) {
  return at::tensor(tensor.strides().vec(), at::kLong);
}

TEST(Field, F29ChannelsLastStridesAreTheSame) {
  const Program program = []() -> StepFunction {
    begin_program();
    const auto channels_last = at::MemoryFormat::ChannelsLast;
    torch::nn::Sequential model(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)), torch::nn::ReLU(),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)), torch::nn::ReLU());
    const Net net{model->parameters(), nullptr};
    const at::Tensor x = torch::randn({4, 8, 16, 16}).contiguous(channels_last).requires_grad_();
    return [=](int) mutable {
      forget_gradients(net);
      x.mutable_grad() = at::Tensor();
      const at::Tensor h = model->forward(x);
      h.retain_grad();
      const at::Tensor loss = (h * h.sin()).mean();
      loss.backward();
      EXPECT_TRUE(h.is_contiguous(channels_last));
      descend(net);
      std::vector<at::Tensor> seen = observed(net, loss);
      for (const at::Tensor& g : {x.grad(), h.grad(), net.parameters[0].grad()}) {
        seen.push_back(g);
        seen.push_back(strides_of(g));
      }
      return seen;
    };
  };
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
