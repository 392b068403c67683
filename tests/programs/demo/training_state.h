// Everything that training carries from one step to the next, in a file and as a digest.
//
// A checkpoint holds parameters, buffers, optimizer state, generator states, the step and the
// options that must match. It is written to a temporary and renamed, so a reader never sees half a
// file. `load` throws InvalidInput when the file is missing, damaged or belongs to other options.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "options.h"

namespace lowtide::demo {

struct TrainingState {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  c10::Device device;
  int64_t step = 0;  // steps done
};

void save_checkpoint(const TrainingState& state, const Options& options, const std::string& path);
void load_checkpoint(TrainingState& state, const Options& options, const std::string& path);

struct StateDigests {
  std::string parameters;
  std::string gradients;
  std::string buffers;
  std::string optimizer;
  std::string random;
};
[[nodiscard]] StateDigests digests(const TrainingState& state);
[[nodiscard]] std::string gradient_digest(const torch::nn::Module& model);

}  // namespace lowtide::demo
