#include "models.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace plain {
namespace {

namespace nn = torch::nn;
constexpr int64_t kCharacters = 64;
constexpr int64_t kWidth = 64;
constexpr int64_t kHeads = 4;
constexpr int64_t kContext = 64;

class BlockImpl : public nn::Module {
 public:
  explicit BlockImpl(double dropout)
      : norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv_(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        project_(register_module("project", nn::Linear(kWidth, kWidth))),
        norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        widen_(register_module("widen", nn::Linear(kWidth, 4 * kWidth))),
        narrow_(register_module("narrow", nn::Linear(4 * kWidth, kWidth))),
        dropout_(register_module("dropout", nn::Dropout(dropout))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor state = input + attend(norm1_(input));
    return state + dropout_(narrow_(torch::gelu(widen_(norm2_(state)))));
  }

 private:
  torch::Tensor attend(const torch::Tensor& input) {
    const int64_t rows = input.size(0);
    const auto parts = qkv_(input)
                           .view({rows, kContext, 3, kHeads, kWidth / kHeads})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const double scale = 1 / std::sqrt(static_cast<double>(kWidth / kHeads));
    const torch::Tensor scores = torch::matmul(parts[0] * scale, parts[1].transpose(-2, -1));
    const torch::Tensor mixed =
        torch::matmul(dropout_(torch::softmax(scores, -1)), parts[2]).transpose(1, 2);
    return project_(mixed.reshape({rows, kContext, kWidth}));
  }

  nn::LayerNorm norm1_;
  nn::Linear qkv_;
  nn::Linear project_;
  nn::LayerNorm norm2_;
  nn::Linear widen_;
  nn::Linear narrow_;
  nn::Dropout dropout_;
};
TORCH_MODULE(Block);

nn::Sequential deep_network(int64_t inputs, int64_t outputs) {
  nn::Sequential network;
  network->push_back(nn::Linear(inputs, 128));
  for (int layer = 0; layer < 6; ++layer) {
    network->push_back(nn::SiLU());
    network->push_back(nn::Linear(128, 128));
    network->push_back(nn::LayerNorm(nn::LayerNormOptions({128})));
  }
  network->push_back(nn::SiLU());
  network->push_back(nn::Linear(128, outputs));
  return network;
}

class GptTrainer : public Trainer {
 public:
  GptTrainer(std::string kind, double dropout)
      : kind_(std::move(kind)),
        model_(4, dropout),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3)) {}

  double step(int index) override {
    optimizer_.zero_grad();
    double loss = 0;
    for (int part = 0; part < (kind_ == "accumulate" ? 3 : 1); ++part) {
      const torch::Tensor output = model_(random_tokens());
      output.backward();
      loss += output.item<double>();
    }
    if (kind_ == "data") {
      write_through_data();
    } else {
      optimizer_.step();
    }
    if (kind_ == "evaluate" && index % 2 == 0) loss += evaluate();
    return loss;
  }
  [[nodiscard]] std::vector<torch::Tensor> parameters() const override {
    return model_->parameters();
  }

 private:
  double evaluate() {
    const torch::NoGradGuard no_grad;
    model_->eval();
    const double loss = model_(random_tokens()).item<double>();
    model_->train();
    return loss;
  }
  void write_through_data() {
    for (const torch::Tensor& parameter : model_->parameters()) {
      parameter.data().sub_(parameter.grad() * 1e-2);
    }
  }

  std::string kind_;
  Gpt model_;
  torch::optim::AdamW optimizer_;
};

// The norm of the loss's gradient by the input is part of the loss: two engine runs in a step.
class PenaltyTrainer : public Trainer {
 public:
  PenaltyTrainer()
      : model_(deep_network(32, 1)),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9)) {}

  double step(int) override {
    optimizer_.zero_grad();
    const torch::Tensor input = torch::randn({1024, 32}).requires_grad_();
    const torch::Tensor output = model_->forward(input);
    const torch::Tensor slope =
        torch::autograd::grad({output.sum()}, {input}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true)[0];
    const torch::Tensor loss = output.mean() + (slope.norm(2, 1) - 1).pow(2).mean();
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }
  [[nodiscard]] std::vector<torch::Tensor> parameters() const override {
    return model_->parameters();
  }

 private:
  nn::Sequential model_;
  torch::optim::SGD optimizer_;
};

// Two optimizers in turn, steps of two kinds.
class GanTrainer : public Trainer {
 public:
  GanTrainer()
      : generator_(deep_network(16, 32)),
        critic_(deep_network(32, 1)),
        generator_optimizer_(generator_->parameters(), torch::optim::AdamOptions(1e-4)),
        critic_optimizer_(critic_->parameters(), torch::optim::AdamOptions(1e-4)) {}

  double step(int) override {
    critic_optimizer_.zero_grad();
    const torch::Tensor made = generator_->forward(torch::randn({1024, 16})).detach();
    const torch::Tensor critic_loss =
        torch::softplus(critic_->forward(made)).mean() +
        torch::softplus(-critic_->forward(torch::randn({1024, 32}))).mean();
    critic_loss.backward();
    critic_optimizer_.step();

    generator_optimizer_.zero_grad();
    const torch::Tensor judged = critic_->forward(generator_->forward(torch::randn({1024, 16})));
    const torch::Tensor loss = torch::softplus(-judged).mean();
    loss.backward();
    generator_optimizer_.step();
    return critic_loss.item<double>() + loss.item<double>();
  }
  [[nodiscard]] std::vector<torch::Tensor> parameters() const override {
    std::vector<torch::Tensor> all = generator_->parameters();
    for (const torch::Tensor& parameter : critic_->parameters()) all.push_back(parameter);
    return all;
  }

 private:
  nn::Sequential generator_;
  nn::Sequential critic_;
  torch::optim::Adam generator_optimizer_;
  torch::optim::Adam critic_optimizer_;
};

// Replaces its parameters instead of writing them: no step ends by a write.
class ReplacingTrainer : public Trainer {
 public:
  ReplacingTrainer() {
    for (int layer = 0; layer < 4; ++layer) {
      weights_.push_back((torch::randn({64, 64}) * 0.1).requires_grad_());
    }
  }
  double step(int) override {
    torch::Tensor state = torch::randn({256, 64});
    for (const torch::Tensor& weight : weights_) state = torch::tanh(torch::matmul(state, weight));
    const torch::Tensor loss = state.pow(2).mean();
    const auto slopes = torch::autograd::grad({loss}, weights_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = (weights_[i] - slopes[i] * 0.1).detach().requires_grad_();
    }
    return loss.item<double>();
  }
  [[nodiscard]] std::vector<torch::Tensor> parameters() const override { return weights_; }

 private:
  std::vector<torch::Tensor> weights_;
};

}  // namespace

GptImpl::GptImpl(int64_t layers, double dropout)
    : characters_(register_module("characters", nn::Embedding(kCharacters, kWidth))),
      places_(register_module("places", nn::Embedding(kContext, kWidth))),
      blocks_(register_module("blocks", nn::ModuleList())),
      head_(register_module("head", nn::Linear(kWidth, kCharacters))) {
  for (int64_t layer = 0; layer < layers; ++layer) blocks_->push_back(Block(dropout));
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  torch::Tensor state = characters_(tokens) + places_(torch::arange(kContext));
  for (const auto& block : *blocks_) state = block->as<BlockImpl>()->forward(state);
  return torch::cross_entropy_loss(head_(state).flatten(0, 1), tokens.roll(-1, 1).flatten());
}

torch::Tensor random_tokens(int64_t rows) {
  return torch::randint(kCharacters, {rows, kContext}, torch::kLong);
}

std::unique_ptr<Trainer> make_trainer(const std::string& kind, double dropout) {
  if (kind == "penalty") return std::make_unique<PenaltyTrainer>();
  if (kind == "gan") return std::make_unique<GanTrainer>();
  if (kind == "replace") return std::make_unique<ReplacingTrainer>();
  if (kind == "gpt" || kind == "accumulate" || kind == "evaluate" || kind == "data") {
    return std::make_unique<GptTrainer>(kind, dropout);
  }
  throw std::invalid_argument("no such kind: " + kind);
}

}  // namespace plain
