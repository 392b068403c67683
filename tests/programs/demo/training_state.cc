#include "training_state.h"

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "digest.h"
#include "random_state.h"

namespace lowtide::demo {
namespace {

// What must be the same for a resumed run to continue the interrupted one.
std::string identity(const Options& options) {
  std::ostringstream text;
  text << options.program << ": batch=" << options.batch << " context=" << options.context
       << " lengths=" << options.min_length << ':' << options.max_length
       << " width=" << options.width << " layers=" << options.layers << " heads=" << options.heads
       << " fused=" << options.fused << " dropout=" << options.dropout << " lr=" << options.lr
       << " momentum=" << options.momentum << " seed=" << options.seed;
  return text.str();
}

void add(Digest& digest, const torch::Tensor& tensor) {
  const torch::Tensor bytes = tensor.detach().cpu().contiguous();
  digest.add(bytes.const_data_ptr(), bytes.nbytes());
}

void add(Digest& digest, const torch::optim::OptimizerParamState& state) {
  if (const auto* adam = dynamic_cast<const torch::optim::AdamWParamState*>(&state)) {
    add(digest, adam->exp_avg());
    add(digest, adam->exp_avg_sq());
  } else if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state)) {
    add(digest, sgd->momentum_buffer());
  } else {
    throw InternalError("digest: the state of this optimizer is not known; add it here");
  }
}

std::string optimizer_digest(torch::optim::Optimizer& optimizer) {
  Digest digest;
  for (const auto& parameter : optimizer.param_groups().front().params()) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) add(digest, *found->second);
  }
  return digest.text();
}

}  // namespace

void save_checkpoint(const TrainingState& state, const Options& options, const std::string& path) {
  torch::serialize::OutputArchive archive;
  archive.write("identity", c10::IValue(identity(options)));
  archive.write("step", c10::IValue(state.step));
  archive.write("random", c10::IValue(random_state(state.device)));
  torch::serialize::OutputArchive model;
  state.model.save(model);
  archive.write("model", model);
  torch::serialize::OutputArchive optimizer;
  state.optimizer.save(optimizer);
  archive.write("optimizer", optimizer);

  const std::filesystem::path target(path);
  std::filesystem::path half = target;
  half += ".part";
  try {
    if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path());
    archive.save_to(half.string());
    std::filesystem::rename(half, target);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(half, ignored);
    throw InvalidInput("--checkpoint: cannot write '" + path + "'; choose a writable folder with " +
                       "free space");
  }
}

void load_checkpoint(TrainingState& state, const Options& options, const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw InvalidInput("--resume: '" + path + "' is not a file; give one that --checkpoint wrote");
  }
  c10::IValue saved_identity;
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(path, state.device);
    archive.read("identity", saved_identity);
  } catch (const c10::Error&) {
    throw InvalidInput("--resume: '" + path + "' is damaged or no checkpoint; give one " +
                       "that --checkpoint wrote");
  }
  if (!saved_identity.isString() || saved_identity.toStringRef() != identity(options)) {
    const std::string saved = saved_identity.isString() ? saved_identity.toStringRef() : "unknown";
    throw InvalidInput("--resume: '" + path + "' was trained with " + saved + ", this run has " +
                       identity(options) + "; use the same options");
  }
  c10::IValue step;
  archive.read("step", step);
  c10::IValue random;
  archive.read("random", random);
  torch::serialize::InputArchive model;
  archive.read("model", model);
  state.model.load(model);
  torch::serialize::InputArchive optimizer;
  archive.read("optimizer", optimizer);
  state.optimizer.load(optimizer);
  state.step = step.toInt();
  std::vector<torch::Tensor> states;
  for (const torch::Tensor& saved : random.toTensorVector()) states.push_back(saved.cpu());
  set_random_state(state.device, states);
}

StateDigests digests(const TrainingState& state) {
  Digest parameters;
  for (const auto& parameter : state.model.parameters()) add(parameters, parameter);
  Digest buffers;
  for (const auto& buffer : state.model.buffers()) add(buffers, buffer);
  Digest random;
  for (const auto& generator : random_state(state.device)) add(random, generator);
  return {parameters.text(), gradient_digest(state.model), buffers.text(),
          optimizer_digest(state.optimizer), random.text()};
}

std::string gradient_digest(const torch::nn::Module& model) {
  Digest digest;
  for (const auto& parameter : model.parameters()) {
    if (parameter.grad().defined()) add(digest, parameter.grad());
  }
  return digest.text();
}

}  // namespace lowtide::demo
