// Model of train_resnet: three stages of residual blocks, each stage with half the side and twice
// the channels of the one before. Written the way LibTorch users write one, with the in-place
// operators that save memory without Lowtide: ReLU over the output of batch normalization, the sum
// over the branch.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "program.h"

namespace lowtide::demo {

class ResidualBlockImpl : public torch::nn::Module {
 public:
  // `stride` 2 halves the side; then, or where the channels change, the shortcut is a convolution.
  ResidualBlockImpl(int64_t inputs, int64_t outputs, int64_t stride);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Conv2d first_;
  torch::nn::BatchNorm2d first_norm_;
  torch::nn::Conv2d second_;
  torch::nn::BatchNorm2d second_norm_;
  torch::nn::Conv2d shortcut_{nullptr};  // null = the input itself
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};
TORCH_MODULE(ResidualBlock);

class Resnet : public Model {
 public:
  Resnet(const Options& options, int64_t classes);
  // Images: rows x 1 x side x side; labels: rows.
  torch::Tensor loss(const torch::Tensor& images, const torch::Tensor& labels) override;

 private:
  Recompute recompute_;
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d stem_norm_;
  torch::nn::ModuleList blocks_;
  torch::nn::Dropout dropout_;
  torch::nn::Linear head_;
};

}  // namespace lowtide::demo
