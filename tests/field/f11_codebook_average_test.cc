// F11: a codebook that the forward averages kept the graph of every step alive.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

Net vector_quantizer() {
  const at::Tensor x = torch::randn({128, 48});
  const at::Tensor w = parameter({48, 48});
  const at::Tensor codebook = torch::randn({128, 48});
  return {{w},
          [=](int) {
            const at::Tensor z = x.mm(w).tanh();
            const at::Tensor code = at::cdist(z.detach(), codebook).argmin(1);
            const at::Tensor q = codebook.index_select(0, code);
            codebook.mul_(0.95).index_add_(0, code, z.detach(), 0.05);
            const at::Tensor straight = z + (q - z).detach();
            return (straight * z).sin().mean() + (z - q).pow(2).mean();
          },
          {codebook}};
}

TEST(Field, F11CodebookMovesOncePerStepInFlatMemory) {
  EXPECT_EQ(differences(training(vector_quantizer)), "");
  const StepFunction step_function = training(vector_quantizer)();
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  Session session(options);
  int64_t after_ten = 0;
  for (int i = 1; i <= 50; ++i) {
    {
      const Step step = session.step();
      step_function(i);
    }
    const int64_t bytes = bytes_in_use();
    after_ten = i == 10 ? bytes : after_ten;
    if (i > 10) {
      EXPECT_EQ(bytes, after_ten) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace lowtide::testing
