// F30: complex and integer tensors among the inputs; a filter for floats dropped them.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

template <at::ScalarType complex>
Program spectral() {
  return training([] {
    const at::ScalarType real = c10::toRealValueType(complex);
    const at::Tensor x = torch::randn({64, 96}, real);
    const at::Tensor mask = torch::randint(0, 2, {64, 49}, torch::kInt);
    const at::Tensor z = torch::randn({64, 49}, complex).requires_grad_();
    return Net{{z}, [=](int) {
                 const at::Tensor f = at::fft_rfft(x) * z * mask;
                 return at::fft_ifft((f * f.exp().conj()).tanh()).abs().pow(2).mean();
               }};
  });
}

TEST(Field, F30SpectralWeightsAndAnIntegerMask) {
  EXPECT_EQ(differences(spectral<at::kComplexFloat>()), "");
  EXPECT_EQ(differences(spectral<at::kComplexDouble>()), "");
}

// 64 x 49 elements of 8 or 16 bytes.
TEST(Field, F30ComplexBytesAreCountedWhole) {
  for (const int64_t element : {8, 16}) {
    SessionOptions options;
    options.store = false;
    options.budget = "none";
    const SessionRun run = run_session(
        element == 8 ? spectral<at::kComplexFloat>() : spectral<at::kComplexDouble>(), 6, options);
    int products = 0;
    for (const TraceOp& op : run.trace->ops) {
      if (op.phase == Phase::forward && op.name == "aten::mul.Tensor") {
        EXPECT_EQ(run.trace->storages[static_cast<size_t>(op.outputs.at(0))].bytes,
                  64 * 49 * element);
        ++products;
      }
    }
    EXPECT_EQ(products, 3);
  }
}

}  // namespace
}  // namespace lowtide::testing
