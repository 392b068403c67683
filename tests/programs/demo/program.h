// What makes one demo program different from the others: its options, data, model and optimizer.
// All the rest (loop, checkpoints, figures, errors) is shared.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <vector>

#include "data_set.h"
#include "options.h"

namespace lowtide::demo {

// A model that scores itself. Nothing in one knows about Lowtide.
class Model : public torch::nn::Module {
 public:
  // Mean cross entropy of the batch: what training brings down.
  virtual torch::Tensor loss(const torch::Tensor& inputs, const torch::Tensor& targets) = 0;
};

struct Program {
  OptionSet options;
  std::function<std::unique_ptr<DataSet>(const Options&)> data;
  std::function<std::shared_ptr<Model>(const Options&, int64_t classes)> model;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> parameters,
                                                         const Options&)>
      optimizer;
};

// `main` of every demo program. Exit codes: 0 done, 2 bad input, 3 the memory allowed is not
// enough, 1 anything else.
int run_program(const Program& program, int argc, char** argv);

}  // namespace lowtide::demo
