// F16: an own function that saves its own output leaked it every step.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

struct OwnExp : public torch::autograd::Function<OwnExp> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    const at::Tensor y = x.exp();
    ctx->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * ctx->get_saved_variables()[0]};
  }
};

Net own_exp_last() {
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  return {{w}, [=](int) { return OwnExp::apply(OwnExp::apply(x.mm(w)).mm(w)).mean(); }};
}

TEST(Field, F16FunctionThatSavesItsOutputLeavesNothing) {
  EXPECT_EQ(differences(training(own_exp_last)), "");
  const Net net = own_exp_last();
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  Session session(options);
  const int64_t base = bytes_in_use();
  for (int i = 1; i <= 20; ++i) {
    {
      const Step step = session.step();
      net.loss(i).backward();
      forget_gradients(net);
    }
    EXPECT_EQ(bytes_in_use(), base) << "step " << i;
  }
}

}  // namespace
}  // namespace lowtide::testing
