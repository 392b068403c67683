// Short form for hostile training programs: what a net is made of and its loss; the rest (zeroed
// gradients, backward, plain SGD, observation of every bit) is the same for all.
//
// Header-only helper of the hard_*_test.cc files. Tensors of 20 KiB or more are seen by eviction.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <utility>
#include <vector>

#include "training_pair.h"

namespace lowtide::testing {

struct Net {
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(int step)> loss;
  std::vector<at::Tensor> watched = {};  // buffers, batches: observed after each step
};

[[nodiscard]] inline at::Tensor parameter(at::IntArrayRef sizes, double scale = 0.1) {
  return (torch::randn(sizes) * scale).requires_grad_();
}

inline std::vector<at::Tensor> observed(const Net& net, const at::Tensor& loss) {
  std::vector<at::Tensor> seen{loss.detach().clone()};
  for (const at::Tensor& p : net.parameters) {
    seen.push_back(p.detach().clone());
    seen.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  }
  for (const at::Tensor& b : net.watched) {
    seen.push_back(b.detach().clone());
  }
  return seen;
}

inline void descend(const Net& net, double rate = 0.05) {
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& p : net.parameters) {
    if (p.grad().defined()) {
      p.sub_(p.grad(), rate);
    }
  }
}

inline void forget_gradients(const Net& net) {
  for (const at::Tensor& p : net.parameters) {
    p.mutable_grad() = at::Tensor();
  }
}

// Equal beginnings. One intra-op thread: small ops on a busy machine mostly wait for the second
// one.
inline void begin_program() {
  at::set_num_threads(1);
  torch::manual_seed(1);
}

// `build` runs under a fixed seed. One step: loss, backward, descent.
[[nodiscard]] inline Program training(std::function<Net()> build) {
  return [build = std::move(build)]() -> StepFunction {
    begin_program();
    return [net = build()](int step) {
      forget_gradients(net);
      const at::Tensor loss = net.loss(step);
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
}

}  // namespace lowtide::testing
