// Models and training steps of the plain programs. They use torch and nothing else.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace plain {

// A character model: blocks of attention and an MLP with dropout; `forward` gives the loss of a
// batch.
class GptImpl : public torch::nn::Module {
 public:
  GptImpl(int64_t layers, double dropout);
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  torch::nn::Embedding characters_{nullptr};
  torch::nn::Embedding places_{nullptr};
  torch::nn::ModuleList blocks_;
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Gpt);

torch::Tensor random_tokens(int64_t rows = 16);

// One training step of some kind; its loss.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual double step(int index) = 0;
  [[nodiscard]] virtual std::vector<torch::Tensor> parameters() const = 0;
};

// gpt, accumulate, penalty, evaluate, gan, data (parameters written through .data()), replace
// (parameters replaced, never written).
std::unique_ptr<Trainer> make_trainer(const std::string& kind, double dropout = 0.1);

}  // namespace plain
