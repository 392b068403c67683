// train_lstm: trains a character-level recurrent network on a text file under an absolute memory
// budget.
#include <torch/optim/adamw.h>

#include "corpus.h"
#include "lstm.h"

namespace {

using namespace lowtide::demo;

Program program() {
  Program program;
  program.options.summary = "Trains a character-level LSTM on a text file";
  program.options.text = true;
  program.options.fused = true;
  Options& defaults = program.options.defaults;
  defaults.program = "train_lstm";
  defaults.batch = 32;
  defaults.context = 64;
  defaults.width = 256;
  defaults.layers = 2;
  defaults.lr = 2e-3;
  program.data = [](const Options& options) { return std::make_unique<Corpus>(options); };
  program.model = [](const Options& options, int64_t classes) {
    return std::make_shared<Lstm>(options, classes);
  };
  program.optimizer = [](std::vector<torch::Tensor> parameters, const Options& options) {
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(options.lr).weight_decay(0.01));
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) { return run_program(program(), argc, argv); }
