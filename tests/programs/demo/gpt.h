// Model of train_gpt: a decoder-only transformer over characters, written the way LibTorch users
// write one. Attention is spelled out in plain operators, so that the same kernels run with and
// without dropout.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "program.h"

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

class Gpt : public Model {
 public:
  Gpt(const Options& options, int64_t vocabulary_size);
  // Tokens and targets: batch x length.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets) override;

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

}  // namespace lowtide::demo
