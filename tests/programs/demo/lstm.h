// Model of train_lstm: a stack of LSTM layers over characters. Unrolled cell by cell, so that each
// time step's gates are values of their own; with --fused through torch::nn::LSTM, whose kernels
// hold them.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <vector>

#include "program.h"

namespace lowtide::demo {

class Lstm : public Model {
 public:
  Lstm(const Options& options, int64_t classes);
  // Tokens and targets: batch x length.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets) override;

 private:
  // One time step of all layers. In: the input, batch x width, then the hidden and the cell state
  // of each layer; out: the new states.
  std::vector<torch::Tensor> advance(const std::vector<torch::Tensor>& inputs);
  // Length x batch x width to the same.
  torch::Tensor unroll(const torch::Tensor& characters);

  Recompute recompute_;
  torch::nn::Embedding characters_;
  torch::nn::LSTM fused_{nullptr};  // null = unrolled
  torch::nn::ModuleList cells_;     // empty = fused
  torch::nn::Dropout dropout_;
  torch::nn::Linear head_;
};

}  // namespace lowtide::demo
