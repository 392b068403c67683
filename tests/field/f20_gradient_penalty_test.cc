// F20: a gradient inside the loss (physics-informed nets, gradient penalties).
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F20GradientPenalty) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor w = parameter({96, 96});
              const at::Tensor v = parameter({96, 1});
              return Net{{w, v}, [=](int) {
                           const at::Tensor x = torch::randn({64, 96}).requires_grad_();
                           const at::Tensor y = x.mm(w).tanh().mm(v);
                           const at::Tensor g =
                               torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
                           return y.mean() + (g.norm(2, 1) - 1).pow(2).mean();
                         }};
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
