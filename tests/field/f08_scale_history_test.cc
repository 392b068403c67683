// F08: a scale history that the forward both reads and advances moved again in recompute.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F08ScaleHistoryAdvancesOnceAndRecomputeSeesTheOldValue) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor amax = torch::ones({1}) * 0.1;
              return Net{{w},
                         [=](int step) {
                           at::Tensor h = x * step;
                           for (int layer = 0; layer < 3; ++layer) {
                             const at::Tensor scale = amax.reciprocal();
                             const at::Tensor scaled = h * scale;
                             {
                               const torch::NoGradGuard no_grad;
                               amax.copy_(at::max(amax, h.abs().max()));
                             }
                             h = (scaled.sin().mm(w) * scale).tanh() * scaled.cos();
                           }
                           return h.pow(2).mean();
                         },
                         {amax}};
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
