// F38: one weight used by two layers; recomputation made its gradient hook fire twice.
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "hard_program.h"

namespace lowtide::testing {
namespace {

class Counts : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Counts(int64_t* calls) : calls_(calls) {}
  void operator()(const at::Tensor&) override { ++*calls_; }

 private:
  int64_t* calls_;
};

TEST(Field, F38HookOfATiedWeightFiresOncePerBackward) {
  int64_t calls = 0;
  const Program program = [&calls]() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96}), parameter({96})}, nullptr};
    torch::autograd::impl::set_post_acc_grad_hooks(net.parameters[0],
                                                   std::make_unique<Counts>(&calls));
    return [=, &calls](int) {
      forget_gradients(net);
      calls = 0;
      const at::Tensor h = at::gelu(at::linear(x, net.parameters[0], net.parameters[1])).exp();
      const at::Tensor loss =
          at::linear(h, net.parameters[0], net.parameters[1]).sin().mul(h).mean();
      loss.backward();
      EXPECT_EQ(calls, 1);
      descend(net);
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
