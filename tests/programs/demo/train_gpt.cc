// train_gpt: trains a character-level GPT under an absolute memory budget.
#include <torch/optim/adamw.h>

#include "corpus.h"
#include "gpt.h"

namespace {

using namespace lowtide::demo;

Program program() {
  Program program;
  program.options.summary = "Trains a character-level GPT on a text file";
  program.options.text = true;
  program.options.heads = true;
  program.options.defaults.program = "train_gpt";
  program.data = [](const Options& options) { return std::make_unique<Corpus>(options); };
  program.model = [](const Options& options, int64_t classes) {
    return std::make_shared<Gpt>(options, classes);
  };
  program.optimizer = [](std::vector<torch::Tensor> parameters, const Options& options) {
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(options.lr).weight_decay(0.1));
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) { return run_program(program(), argc, argv); }
