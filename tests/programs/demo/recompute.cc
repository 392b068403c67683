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

// What backward needs to run the region again, in the shape that saved_data can hold.
struct Held : torch::CustomClassHolder {
  Held(Region given, Tensors buffers) : region(std::move(given)), state(std::move(buffers)) {}
  Region region;
  Tensors state;
};

// The second run of a region: generators and buffers are as they were when this object ends.
class SecondRun {
 public:
  SecondRun(const Held& held, c10::Device device, const Tensors& random)
      : state_(held.state), device_(device), random_(random_state(device)) {
    for (const at::Tensor& buffer : state_) before_.push_back(buffer.detach().clone());
    set_random_state(device_, random);
  }
  ~SecondRun() {
    set_random_state(device_, random_);
    // Through variable_data, whose writes autograd does not count: the region's own graph has saved
    // these buffers, and its backward is still to come.
    for (size_t i = 0; i < state_.size(); ++i) state_[i].variable_data().copy_(before_[i]);
  }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  const Tensors& state_;
  c10::Device device_;
  Tensors random_;
  Tensors before_;
};

struct Again : torch::autograd::Function<Again> {
  // autograd::Function runs forward without a graph.
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               c10::intrusive_ptr<Held> held) {
    context->save_for_backward(inputs.vec());
    context->saved_data["random"] = random_state(inputs[0].device());
    // An output that nobody used must add nothing, as without this function; not zeros.
    context->set_materialize_grads(false);
    variable_list outputs = held->region(inputs.vec());
    context->saved_data["held"] = c10::IValue::make_capsule(std::move(held));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list inputs = context->get_saved_variables();
    const auto held =
        c10::static_intrusive_pointer_cast<Held>(context->saved_data["held"].toCapsule());
    for (at::Tensor& input : inputs) {
      input = input.detach().set_requires_grad(input.requires_grad());
    }
    variable_list outputs;
    {
      const SecondRun scope(*held, inputs[0].device(),
                            context->saved_data["random"].toTensorVector());
      c10::AutoGradMode with_graph(true);
      outputs = held->region(inputs);
    }
    variable_list used;
    variable_list their_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined()) continue;
      used.push_back(std::move(outputs[i]));
      their_gradients.push_back(gradients[i]);
    }
    outputs.clear();
    torch::autograd::backward(used, their_gradients);
    variable_list result;
    for (const at::Tensor& input : inputs) result.push_back(input.grad());
    result.emplace_back();  // of `held`
    return result;
  }
};

}  // namespace

Tensors recompute_in_backward(Region region, const Tensors& inputs, Tensors state) {
  return Again::apply(at::TensorList(inputs),
                      c10::make_intrusive<Held>(std::move(region), std::move(state)));
}

}  // namespace lowtide::demo
