// F12: matmul outputs are kept, the next op writes in place on one of them (selu_, LoRA's add_).
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F12ActivationInPlaceOnAProduct) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w);
                           at::selu_(h);
                           at::Tensor g = h.mm(w);
                           at::selu_(g);
                           return (g.exp() * g).mean();
                         }};
            })),
            "");
}

TEST(Field, F12LowRankAdapterAddedInPlace) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor frozen = parameter({96, 96}).detach();
              const at::Tensor a = parameter({96, 4});
              const at::Tensor b = parameter({4, 96});
              return Net{{a, b}, [=](int) {
                           at::Tensor h = x.mm(frozen);
                           h.add_(x.mm(a).mm(b), 2.0);
                           h = h.tanh().mm(frozen);
                           h.add_(h.tanh().mm(a).mm(b));
                           return h.pow(2).mean();
                         }};
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
