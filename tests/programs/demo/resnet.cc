#include "resnet.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "recompute.h"

namespace lowtide::demo {
namespace {

constexpr int64_t kStages = 3;

torch::nn::Conv2d convolution(int64_t inputs, int64_t outputs, int64_t kernel, int64_t stride) {
  // Batch normalization follows, and takes any bias away.
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(int64_t inputs, int64_t outputs, int64_t stride)
    : first_(register_module("first", convolution(inputs, outputs, 3, stride))),
      first_norm_(register_module("first_norm", torch::nn::BatchNorm2d(outputs))),
      second_(register_module("second", convolution(outputs, outputs, 3, 1))),
      second_norm_(register_module("second_norm", torch::nn::BatchNorm2d(outputs))) {
  if (stride == 1 && inputs == outputs) return;
  shortcut_ = register_module("shortcut", convolution(inputs, outputs, 1, stride));
  shortcut_norm_ = register_module("shortcut_norm", torch::nn::BatchNorm2d(outputs));
}

torch::Tensor ResidualBlockImpl::forward(const torch::Tensor& input) {
  torch::Tensor branch = first_norm_->forward(first_->forward(input)).relu_();
  branch = second_norm_->forward(second_->forward(branch));
  branch += shortcut_ ? shortcut_norm_->forward(shortcut_->forward(input)) : input;
  return branch.relu_();
}

Resnet::Resnet(const Options& options, int64_t classes)
    : recompute_(options.recompute),
      stem_(register_module("stem", convolution(1, options.width, 3, 1))),
      stem_norm_(register_module("stem_norm", torch::nn::BatchNorm2d(options.width))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))),
      head_(register_module("head", torch::nn::Linear(options.width << (kStages - 1), classes))) {
  int64_t channels = options.width;
  for (int64_t stage = 0; stage < kStages; ++stage) {
    const int64_t outputs = options.width << stage;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      blocks_->push_back(ResidualBlock(channels, outputs, stage > 0 && layer == 0 ? 2 : 1));
      channels = outputs;
    }
  }
}

torch::Tensor Resnet::loss(const torch::Tensor& images, const torch::Tensor& labels) {
  torch::Tensor state = stem_norm_->forward(stem_->forward(images)).relu_();
  for (const auto& module : *blocks_) {
    ResidualBlockImpl& block = *module->as<ResidualBlockImpl>();
    if (recompute_ == Recompute::blocks && c10::GradMode::is_enabled()) {
      const auto run = [&block](const Tensors& inputs) -> Tensors {
        return {block.forward(inputs[0])};
      };
      state = recompute_in_backward(run, {state}, block.buffers())[0];
    } else {
      state = block.forward(state);
    }
  }
  const torch::Tensor pooled = dropout_->forward(at::mean(state, {2, 3}));
  return at::cross_entropy_loss(head_->forward(pooled), labels);
}

}  // namespace lowtide::demo
