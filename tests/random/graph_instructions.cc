// Instructions about the graph: modes, own functions, backwards in the middle of the forward,
// gradients of gradients, control flow by value, abandoned and early freed parts.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "random/machine.h"

namespace lowtide::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saves an input, an intermediate and its own output; reads them one by one.
struct OwnProduct : public torch::autograd::Function<OwnProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor s = x.sigmoid();
    const at::Tensor out = (s * y).tanh();
    context->save_for_backward({s, y, out});
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor s = context->get_saved_variables()[0];
    const at::Tensor out = context->get_saved_variables()[2];
    const at::Tensor y = context->get_saved_variables()[1];
    const at::Tensor g = gradients[0] * (1 - out * out);
    return {g * y * s * (1 - s), g * s};
  }
};

void backward_of(Machine& m, uint8_t i) {
  const at::Tensor loss = m.get(i).sin().mean();
  if (loss.requires_grad()) {
    loss.backward({}, /*retain_graph=*/true);
  }
}

constexpr InstructionKind kGraphInstructions[] = {
    {"detach_clone", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).detach().clone().sin_(), o.c); }},
    {"without_gradients", 2, false,
     [](Machine& m, Operands o) {
       const c10::AutoGradMode off(false);
       m.push(m.get(o.a).tanh() * m.get(o.b).cos(), o.c);
     }},
    {"inference", 1, false,
     [](Machine& m, Operands o) {
       const c10::InferenceMode inference;
       m.average.mul_(0.99).add_(m.get(o.a).exp().mean() * 1e-3);
     }},
    {"own_function", 2, false,
     [](Machine& m, Operands o) { m.push(OwnProduct::apply(m.get(o.a), m.get(o.b)), o.c); }},
    {"backward", 2, false, [](Machine& m, Operands o) { backward_of(m, o.a); }},
    {"backward_twice", 1, false,
     [](Machine& m, Operands o) {
       backward_of(m, o.a);
       backward_of(m, o.a);
     }},
    {"gradient_of_gradient", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor y = m.get(o.a);
       const at::Tensor x = m.get(o.b);
       if (y.requires_grad() && x.requires_grad() && !x.is_same(y)) {
         const variable_list g = torch::autograd::grad({y.sin().sum()}, {x}, {}, true,
                                                       /*create_graph=*/true, true);
         m.push(g[0].defined() ? g[0].tanh() : x, o.c);
       }
     }},
    {"partial_gradient", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor y = m.get(o.a);
       if (y.requires_grad()) {
         const variable_list g =
             torch::autograd::grad({y.mean()}, {m.weight}, {}, true, false, true);
         m.push(m.get(o.b) * (g[0].defined() ? g[0].mean().tanh() : at::ones({})), o.c);
       }
     }},
    {"branch_by_value", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a);
       m.push(a.mean().item<float>() > 0 ? a.sin() : a.tanh(), o.c);
     }},
    {"abandoned", 1, false,
     [](Machine& m, Operands o) { (void)(m.get(o.a).exp() * m.get(o.b)).tanh().mm(m.weight); }},
    {"evaluation", 1, false,
     [](Machine& m, Operands o) {
       const c10::AutoGradMode off(false);
       m.average.mul_(0.9).add_(m.get(o.a).mm(m.weight).sigmoid(), 0.1);
     }},
    {"gradient_hook", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a).sin();
       if (a.requires_grad()) {
         a.register_hook([seen = a.detach()](const at::Tensor& g) { return g * seen.tanh(); });
       }
       m.push(a, o.c);
     }},
    {"forget", 2, false, [](Machine& m, Operands o) { m.drop(o.a); }},
    {"alias", 1, false, [](Machine& m, Operands o) { m.push(m.get(o.a), o.c); }},
    {"weight_step", 1, true,  // an optimizer between two backwards
     [](Machine& m, Operands) {
       if (m.bias.grad().defined()) {
         const c10::AutoGradMode off(false);
         m.bias.sub_(m.bias.grad().clamp(-1, 1), 1e-3);
       }
     }},
};

}  // namespace

std::span<const InstructionKind> graph_instructions() { return kGraphInstructions; }

}  // namespace lowtide::testing
