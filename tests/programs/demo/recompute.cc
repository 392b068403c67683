#include "recompute.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "random_state.h"

namespace lowtide::demo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A closure in the shape that saved_data can hold.
struct Held : torch::CustomClassHolder {
  explicit Held(Region given) : region(std::move(given)) {}
  Region region;
};

struct Again : torch::autograd::Function<Again> {
  // autograd::Function runs forward without a graph.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            c10::intrusive_ptr<Held> held) {
    context->save_for_backward({input});
    context->saved_data["random"] = random_state(input.device());
    at::Tensor output = held->region(input);
    context->saved_data["region"] = c10::IValue::make_capsule(std::move(held));
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const auto held =
        c10::static_intrusive_pointer_cast<Held>(context->saved_data["region"].toCapsule());
    const std::vector<at::Tensor> now = random_state(input.device());
    set_random_state(input.device(), context->saved_data["random"].toTensorVector());
    at::Tensor output;
    {
      c10::AutoGradMode with_graph(true);
      output = held->region(input);
    }
    set_random_state(input.device(), now);
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute_in_backward(Region region, const at::Tensor& input) {
  return Again::apply(input, c10::make_intrusive<Held>(std::move(region)));
}

}  // namespace lowtide::demo
