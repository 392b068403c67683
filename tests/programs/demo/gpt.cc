#include "gpt.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "recompute.h"

namespace lowtide::demo {

BlockImpl::BlockImpl(int64_t width, int64_t heads, double dropout)
    : heads_(heads),
      norm1_(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
      qkv_(register_module("qkv", torch::nn::Linear(width, 3 * width))),
      project_(register_module("project", torch::nn::Linear(width, width))),
      norm2_(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
      widen_(register_module("widen", torch::nn::Linear(width, 4 * width))),
      narrow_(register_module("narrow", torch::nn::Linear(4 * width, width))),
      attention_dropout_(register_module("attention_dropout", torch::nn::Dropout(dropout))),
      dropout_(register_module("dropout", torch::nn::Dropout(dropout))) {}

torch::Tensor BlockImpl::forward(const torch::Tensor& input, const torch::Tensor& hidden) {
  const torch::Tensor attended = input + attend(norm1_->forward(input), hidden);
  const torch::Tensor widened = at::gelu(widen_->forward(norm2_->forward(attended)));
  return attended + dropout_->forward(narrow_->forward(widened));
}

torch::Tensor BlockImpl::attend(const torch::Tensor& input, const torch::Tensor& hidden) {
  const int64_t batch = input.size(0);
  const int64_t length = input.size(1);
  const int64_t width = input.size(2);
  const auto parts = qkv_->forward(input)
                         .view({batch, length, 3, heads_, width / heads_})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
  const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads_));
  const torch::Tensor scores = at::matmul(parts[0] * scale, parts[1].transpose(-2, -1));
  const torch::Tensor masked = scores.masked_fill(hidden, -std::numeric_limits<float>::infinity());
  const torch::Tensor weights = attention_dropout_->forward(at::softmax(masked, -1));
  const torch::Tensor mixed = at::matmul(weights, parts[2]).transpose(1, 2);
  return dropout_->forward(project_->forward(mixed.reshape({batch, length, width})));
}

Gpt::Gpt(const Options& options, int64_t vocabulary_size)
    : recompute_(options.recompute),
      characters_(
          register_module("characters", torch::nn::Embedding(vocabulary_size, options.width))),
      positions_(register_module("positions",
                                 torch::nn::Embedding(options.longest_sequence(), options.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      norm_(register_module("norm",
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})))),
      head_(register_module("head", torch::nn::Linear(options.width, vocabulary_size))) {
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    blocks_->push_back(Block(options.width, options.heads, options.dropout));
  }
  const int64_t longest = options.longest_sequence();
  hidden_ = register_buffer("hidden", at::ones({longest, longest}, at::kBool).triu(1));
}

torch::Tensor Gpt::loss(const torch::Tensor& tokens, const torch::Tensor& targets) {
  const int64_t length = tokens.size(1);
  const torch::Tensor places = at::arange(length, tokens.options());
  const torch::Tensor hidden = hidden_.slice(0, 0, length).slice(1, 0, length);
  torch::Tensor state =
      dropout_->forward(characters_->forward(tokens) + positions_->forward(places));
  for (const auto& module : *blocks_) {
    BlockImpl& block = *module->as<BlockImpl>();
    const auto run = [&block, hidden](const Tensors& inputs) -> Tensors {
      return {block.forward(inputs[0], hidden)};
    };
    const bool again = recompute_ == Recompute::blocks && c10::GradMode::is_enabled();
    state = again ? recompute_in_backward(run, {state})[0] : block.forward(state, hidden);
  }
  const torch::Tensor logits = head_->forward(norm_->forward(state));
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

}  // namespace lowtide::demo
