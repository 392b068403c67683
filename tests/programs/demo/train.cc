#include "train.h"

#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/utils.h>

#include <chrono>
#include <ctime>
#include <iostream>
#include <optional>

#include "core/bytes.h"
#include "core/error.h"
#include "hooks/torch_cpu_allocator.h"
#include "training_state.h"

namespace lowtide::demo {
namespace {

int64_t process_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

c10::Device torch_device(Device device) {
  if (device == Device::cpu) return c10::kCPU;
  // Registers itself when loaded; before the first question about CUDA, whose answer torch keeps.
  dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (!at::globalContext().hasCUDA()) {
    throw InvalidInput("--device cuda: this machine has no usable GPU; use --device cpu");
  }
  return c10::Device(c10::kCUDA, 0);
}

// The plain arm's hard limit: the same caching core, without anything that frees memory under
// pressure.
class LimitedAllocator {
 public:
  explicit LimitedAllocator(int64_t limit_bytes) {
    hooks::TorchCpuAllocator::install();
    hooks::TorchCpuAllocator::core().set_limit(limit_bytes);
  }
  ~LimitedAllocator() {
    hooks::TorchCpuAllocator::core().set_limit(hooks::CachingCore::kNoLimit);
    hooks::TorchCpuAllocator::uninstall();
  }
  LimitedAllocator(const LimitedAllocator&) = delete;
  LimitedAllocator& operator=(const LimitedAllocator&) = delete;
};

SessionOptions session_options(const Options& options) {
  SessionOptions session;
  session.budget = options.budget;
  session.reserve = options.reserve;
  session.device = options.device == Device::cuda ? "cuda" : "cpu";
  session.strategy = options.strategy;
  session.name = options.name;
  session.directory = options.directory;
  session.plan_file = options.plan;
  session.warmup_steps = options.warmup_steps;
  session.unwatched_steps = options.unwatched_steps;
  session.probe_steps = options.probe_steps;
  session.canary_every = options.canary_every;
  session.verbose = options.verbose;
  return session;
}

class Trainer {
 public:
  Trainer(const Program& program, const Options& options, c10::Device device, RunLog& log,
          Session* session)
      : options_(options),
        log_(log),
        session_(session),
        data_(program.data(options)),
        device_(device),
        judge_(make_memory_judge(options.device)),
        model_(program.model(options, data_->classes())) {
    model_->to(device_);
    optimizer_ = program.optimizer(model_->parameters(), options);
  }

  void run() {
    TrainingState state{*model_, *optimizer_, device_};
    if (!options_.resume.empty()) load_checkpoint(state, options_, options_.resume);
    const int64_t last = options_.stop_at > 0 ? options_.stop_at : options_.steps;
    first_step_ = state.step + 1;
    while (state.step < last) {
      if (options_.paced && !wait_for_line()) break;
      const StepRecord record = step(state.step + 1);
      state.step = record.index;
      const std::string line = log_.add(record);
      if (options_.paced) std::cout << line << std::endl;
    }
    write_down(state);
    if (!options_.checkpoint.empty()) save_checkpoint(state, options_, options_.checkpoint);
    print_screen(state);
  }

 private:
  static bool wait_for_line() {
    std::string line;
    return static_cast<bool>(std::getline(std::cin, line));
  }

  StepRecord step(int64_t index) {
    const Batch batch = data_->training_batch(index);
    const torch::Tensor inputs = batch.inputs.to(device_);
    const torch::Tensor targets = batch.targets.to(device_);
    StepRecord record;
    record.index = index;
    record.rows = batch.rows;
    record.length = batch.length;
    judge_->begin_step();
    const int64_t cpu_begin = process_cpu_ns();
    const int64_t wall_begin = wall_ns();
    if (session_ != nullptr && !options_.idle) {
      auto scope = session_->step();
      record.loss = learn(inputs, targets);
    } else {
      record.loss = learn(inputs, targets);
    }
    record.wall_ns = wall_ns() - wall_begin;
    record.cpu_ns = process_cpu_ns() - cpu_begin;
    record.judged = judge_->peaks();
    if (session_ != nullptr) record.session = session_->last_step();
    if (options_.grad_digest) record.gradients = gradient_digest(*model_);
    if (options_.eval_every > 0 && index % options_.eval_every == 0) record.eval_loss = evaluate();
    if (index == first_step_) first_loss_ = record.loss;
    last_loss_ = record.loss;
    total_wall_ns_ += record.wall_ns;
    return record;
  }

  float learn(const torch::Tensor& inputs, const torch::Tensor& targets) {
    optimizer_->zero_grad();
    torch::Tensor loss = model_->loss(inputs, targets);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_->parameters(), 1.0);
    optimizer_->step();
    return loss.item<float>();
  }

  float evaluate() {
    const torch::NoGradGuard no_grad;
    const Batch batch = data_->evaluation_batch();
    model_->eval();
    const float loss =
        model_->loss(batch.inputs.to(device_), batch.targets.to(device_)).item<float>();
    model_->train();
    return loss;
  }

  void write_down(const TrainingState& state) {
    const StateDigests digest = digests(state);
    log_.set("steps_done", state.step);
    log_.set("parameters", digest.parameters);
    log_.set("gradients", digest.gradients);
    log_.set("buffers", digest.buffers);
    log_.set("optimizer", digest.optimizer);
    log_.set("random", digest.random);
    log_.set("resident_high_water_bytes", resident_high_water_bytes());
    if (session_ != nullptr) log_.set_session(*session_);
    parameter_digest_ = digest.parameters;
  }

  void print_screen(const TrainingState& state) {
    if (session_ != nullptr) std::cout << session_->report() << '\n';
    const int64_t steps = std::max<int64_t>(1, state.step - first_step_ + 1);
    std::cout << "trained   steps " << first_step_ << " to " << state.step << ", loss "
              << first_loss_ << " -> " << last_loss_ << ", "
              << format_duration(total_wall_ns_ / steps) << " a step\n"
              << "result    parameters " << parameter_digest_ << " (equal digests mean equal bits)"
              << std::endl;
  }

  const Options& options_;
  RunLog& log_;
  Session* session_;  // null = plain
  std::unique_ptr<DataSet> data_;
  c10::Device device_;
  std::unique_ptr<MemoryJudge> judge_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  int64_t first_step_ = 1;
  float first_loss_ = 0;
  float last_loss_ = 0;
  int64_t total_wall_ns_ = 0;
  std::string parameter_digest_;
};

}  // namespace

void train(const Program& program, const Options& options, RunLog& log) {
  at::set_num_threads(options.threads);
  if (options.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  const c10::Device device = torch_device(options.device);
  torch::manual_seed(options.seed);
  std::optional<Session> session;
  if (options.lowtide) session.emplace(session_options(options));
  std::optional<LimitedAllocator> limited;
  if (options.limit_bytes) limited.emplace(*options.limit_bytes);
  Trainer trainer(program, options, device, log, session ? &*session : nullptr);
  trainer.run();
}

}  // namespace lowtide::demo
