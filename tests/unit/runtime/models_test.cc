// Whole training programs: bit-identical without a limit, at the smallest budget and under chaos.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "training_pair.h"

namespace lowtide::testing {
namespace {

namespace nn = torch::nn;

std::vector<at::Tensor> parameters_and_loss(const nn::Module& model, const at::Tensor& loss) {
  std::vector<at::Tensor> observed{loss.detach().clone()};
  for (const at::Tensor& p : model.parameters()) {
    observed.push_back(p.detach().clone());
    observed.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  }
  for (const at::Tensor& b : model.buffers()) {
    observed.push_back(b.clone());
  }
  return observed;
}

// A sequential model, cross entropy on random labels, AdamW with clipping.
Program classifier(std::function<nn::Sequential()> build, std::vector<int64_t> input,
                   int64_t classes) {
  return [=]() -> StepFunction {
    torch::manual_seed(1);
    nn::Sequential model = build();
    auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), 1e-3);
    const at::Tensor x = torch::randn(input);
    const at::Tensor y = torch::randint(classes, {input[0]}, torch::kLong);
    return [=](int) mutable {
      optimizer->zero_grad();
      const at::Tensor loss = nn::functional::cross_entropy(model->forward(x), y);
      loss.backward();
      nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer->step();
      return parameters_and_loss(*model, loss);
    };
  };
}

TEST(Models, MlpWithDropout) {
  const auto build = [] {
    nn::Sequential model;
    for (int i = 0; i < 4; ++i) {
      model->push_back(nn::Linear(64, 64));
      model->push_back(nn::GELU());
      model->push_back(nn::Dropout(0.5));
    }
    model->push_back(nn::Linear(64, 10));
    return model;
  };
  EXPECT_EQ(differences(classifier(build, {128, 64}, 10)), "");
}

TEST(Models, ConvBatchNormReluInPlace) {
  const auto build = [] {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8),
                          nn::ReLU(nn::ReLUOptions().inplace(true)),
                          nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), nn::BatchNorm2d(8),
                          nn::ReLU(nn::ReLUOptions().inplace(true)), nn::MaxPool2d(2),
                          nn::GroupNorm(2, 8), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                          nn::Linear(8, 5));
  };
  EXPECT_EQ(differences(classifier(build, {8, 3, 16, 16}, 5)), "");
}

TEST(Models, TransformerEncoderLayer) {
  const Program program = []() -> StepFunction {
    torch::manual_seed(1);
    nn::TransformerEncoderLayer layer(
        nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0.2));
    auto optimizer = std::make_shared<torch::optim::SGD>(layer->parameters(), 0.1);
    const at::Tensor x = torch::randn({16, 8, 32});
    return [=](int) mutable {
      optimizer->zero_grad();
      const at::Tensor loss = layer->forward(x).pow(2).mean();
      loss.backward();
      optimizer->step();
      return parameters_and_loss(*layer, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(Models, LstmWithDropout) {
  const Program program = []() -> StepFunction {
    torch::manual_seed(1);
    nn::LSTM lstm(nn::LSTMOptions(16, 32).num_layers(2).dropout(0.3));
    auto optimizer = std::make_shared<torch::optim::SGD>(lstm->parameters(), 0.1);
    const at::Tensor x = torch::randn({12, 8, 16});
    return [=](int) mutable {
      optimizer->zero_grad();
      const at::Tensor loss = std::get<0>(lstm->forward(x)).pow(2).mean();
      loss.backward();
      optimizer->step();
      return parameters_and_loss(*lstm, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(Models, GradientAccumulationTwoForwardsThenBackwards) {
  const Program program = []() -> StepFunction {
    torch::manual_seed(1);
    nn::Sequential model(nn::Linear(32, 64), nn::Tanh(), nn::Dropout(0.2), nn::Linear(64, 64),
                         nn::Sigmoid(), nn::Linear(64, 4));
    auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), 1e-3);
    const at::Tensor a = torch::randn({64, 32});
    const at::Tensor b = torch::randn({64, 32});
    return [=](int) mutable {
      optimizer->zero_grad();
      const at::Tensor first = model->forward(a).pow(2).mean();
      const at::Tensor second = model->forward(b).abs().mean();
      first.backward();
      second.backward();
      optimizer->step();
      return parameters_and_loss(*model, first + second);
    };
  };
  EXPECT_EQ(differences(program), "");
}

}  // namespace
}  // namespace lowtide::testing
