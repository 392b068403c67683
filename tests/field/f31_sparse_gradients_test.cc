// F31: a sparse embedding gradient in a recomputed part became dense, or met a dense one and
// failed.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F31GradientStaysSparse) {
  const Program program = []() -> StepFunction {
    begin_program();
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(300, 96).sparse(true));
    const Net net{{table->weight, parameter({96, 96})}, nullptr};
    const at::Tensor tokens = torch::randint(300, {64}, torch::kLong);
    return [=](int) mutable {
      forget_gradients(net);
      at::Tensor loss;
      for (int micro = 0; micro < 2; ++micro) {  // sparse gradients accumulate
        const at::Tensor h = table->forward(tokens.roll(micro)).mm(net.parameters[1]).tanh();
        loss = (h * h.exp()).mean();
        loss.backward();
      }
      EXPECT_TRUE(net.parameters[0].grad().is_sparse());
      descend(net);
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
