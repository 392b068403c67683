// An operator whose kernel differentiates: a backward within one op of the forward, while the op's
// own record is open and nothing may have been saved yet.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "runtime/internal_guards.h"
#include "training_pair.h"

namespace lowtide::testing {
namespace {

// d/dx sum(x sin x), with autograd back on as a kernel that wants it does.
at::Tensor slope(const at::Tensor& x) {
  const c10::impl::ForceDispatchKeyGuard with_autograd(
      c10::impl::tls_local_dispatch_key_set().included_, c10::DispatchKeySet(runtime::kCaptureKey));
  const c10::AutoGradMode on(true);
  const at::Tensor y = x.detach().requires_grad_();
  return torch::autograd::grad({(y.sin() * y).sum()}, {y})[0];
}

TORCH_LIBRARY(lowtide_nested_test, library) { library.def("slope(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lowtide_nested_test, CPU, library) { library.impl("slope", &slope); }

StepFunction differentiates_inside() {
  at::manual_seed(1);
  const at::Tensor x = at::randn({64, 96});
  const at::Tensor w = (at::randn({96, 96}) * 0.1).requires_grad_();
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("lowtide_nested_test::slope", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  return [=](int) -> std::vector<at::Tensor> {
    w.mutable_grad() = at::Tensor();
    const at::Tensor first = op.call(x);  // nothing has been saved yet
    const at::Tensor h = (x.mm(w) * first).clamp(-2, 2).exp();
    const at::Tensor loss = (h * op.call(h.detach()) * h.sin()).mean();
    loss.backward();
    return {loss.detach(), w.grad()};
  };
}

TEST(NestedAutograd, AnOperatorThatDifferentiatesInside) {
  EXPECT_EQ(differences(differentiates_inside), "");
}

}  // namespace
}  // namespace lowtide::testing
