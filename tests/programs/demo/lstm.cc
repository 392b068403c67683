#include "lstm.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "recompute.h"

namespace lowtide::demo {

Lstm::Lstm(const Options& options, int64_t classes)
    : recompute_(options.recompute),
      characters_(register_module("characters", torch::nn::Embedding(classes, options.width))),
      cells_(register_module("cells", torch::nn::ModuleList())),
      dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))),
      head_(register_module("head", torch::nn::Linear(options.width, classes))) {
  if (options.fused) {
    fused_ = register_module("fused",
                             torch::nn::LSTM(torch::nn::LSTMOptions(options.width, options.width)
                                                 .num_layers(options.layers)
                                                 .dropout(options.dropout)));
    return;
  }
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    cells_->push_back(torch::nn::LSTMCell(options.width, options.width));
  }
}

Tensors Lstm::advance(const Tensors& inputs) {
  Tensors states;
  torch::Tensor input = inputs[0];
  for (size_t layer = 0; layer < cells_->size(); ++layer) {
    auto [hidden, cell] = cells_[layer]->as<torch::nn::LSTMCell>()->forward(
        layer == 0 ? input : dropout_->forward(input),
        std::make_tuple(inputs[1 + 2 * layer], inputs[2 + 2 * layer]));
    input = hidden;
    states.push_back(std::move(hidden));
    states.push_back(std::move(cell));
  }
  return states;
}

torch::Tensor Lstm::unroll(const torch::Tensor& characters) {
  const bool again = recompute_ == Recompute::blocks && c10::GradMode::is_enabled();
  const auto run = [this](const Tensors& inputs) { return advance(inputs); };
  Tensors states(2 * cells_->size(), at::zeros_like(characters[0]));
  Tensors tops;
  for (const torch::Tensor& input : characters.unbind(0)) {
    states.insert(states.begin(), input);
    states = again ? recompute_in_backward(run, states) : advance(states);
    tops.push_back(states[states.size() - 2]);
  }
  return at::stack(tops, 0);
}

torch::Tensor Lstm::loss(const torch::Tensor& tokens, const torch::Tensor& targets) {
  const torch::Tensor characters = characters_->forward(tokens.t());
  const torch::Tensor states =
      fused_ ? std::get<0>(fused_->forward(characters)) : unroll(characters);
  const torch::Tensor logits = head_->forward(dropout_->forward(states));
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.t().flatten());
}

}  // namespace lowtide::demo
