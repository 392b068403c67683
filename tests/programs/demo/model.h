// The model: a decoder-only transformer over characters, written the way LibTorch users write one.
// Nothing in it knows about Lowtide. Attention is spelled out in plain operators, so that the same
// kernels run with and without dropout.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "options.h"

namespace lowtide::demo {

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t width, int64_t heads, double dropout);
  // `input`: batch x length x width; `hidden`: length x length, true where a position must not
  // look.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& hidden);

 private:
  torch::Tensor attend(const torch::Tensor& input, const torch::Tensor& hidden);

  int64_t heads_;
  torch::nn::LayerNorm norm1_;
  torch::nn::Linear qkv_;
  torch::nn::Linear project_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear widen_;
  torch::nn::Linear narrow_;
  torch::nn::Dropout attention_dropout_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  GptImpl(const Options& options, int64_t vocabulary_size);
  // Tokens, batch x length, to the mean cross entropy against `targets` of the same shape.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets);

 private:
  Recompute recompute_;
  torch::nn::Embedding characters_;
  torch::nn::Embedding positions_;
  torch::nn::Dropout dropout_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
  torch::Tensor hidden_;  // buffer
};
TORCH_MODULE(Gpt);

}  // namespace lowtide::demo
