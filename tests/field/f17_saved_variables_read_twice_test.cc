// F17: a backward that asks for its saved tensors twice; the second answer was already gone.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

struct ProductReadTwice : public torch::autograd::Function<ProductReadTwice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& y) {
    context->save_for_backward({x, y});
    return x * y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor y = context->get_saved_variables()[1];
    const at::Tensor for_x = gradients[0] * y;
    const at::Tensor x = context->get_saved_variables()[0];
    return {for_x, gradients[0] * x};
  }
};

Net product() {
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  return {{w}, [=](int) {
            const at::Tensor h = x.mm(w);
            return ProductReadTwice::apply(h.sin(), h.exp()).mean();
          }};
}

TEST(Field, F17BothReadsGiveTheTensor) { EXPECT_EQ(differences(training(product)), ""); }

TEST(Field, F17ReadsCostWhatThePlanSays) {
  const Program program = training(product);
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(smallest_budget(program));
  const SessionRun run = run_session(program, 9, options);
  EXPECT_EQ(run.observed, run_plain(program, 9));
  ASSERT_EQ(run.stats.phase, SessionPhase::enforce);
  EXPECT_GT(run.steps.back().replayed_ops, 0);
  EXPECT_EQ(run.steps.back().replayed_ops, run.plan->predicted.replayed_ops);
}

}  // namespace
}  // namespace lowtide::testing
