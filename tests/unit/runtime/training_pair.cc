#include "training_pair.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>

#include "core/error.h"
#include "core/hash.h"
#include "hooks/torch_cpu_allocator.h"
#include "hooks/torch_cpu_memory.h"
#include "put_allocator.h"
#include "runtime/eviction.h"
#include "runtime/runtime_state.h"
#include "runtime/variant.h"

namespace lowtide::testing {
namespace {

// Evicts from inside allocate, then lets the allocator below serve the request.
class ChaosAllocator : public c10::Allocator {
 public:
  ChaosAllocator(c10::Allocator* below, double p, uint64_t seed)
      : below_(below), p_(p), random_(seed) {}

  c10::DataPtr allocate(size_t bytes) override {
    thread_local bool inside = false;
    runtime::Runtime* active = runtime::Runtime::active();
    if (active != nullptr && active->in_step && !inside && drawn()) {
      inside = true;
      runtime::Evictor evictor(std::shared_ptr<runtime::Runtime>(active, [](auto*) {}),
                               active->memory);
      evictor.free_memory(INT64_MAX / 4, 0);
      inside = false;
    }
    return below_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  c10::Allocator* below() { return below_; }

 private:
  bool drawn() {
    const std::lock_guard lock(mutex_);
    return std::uniform_real_distribution<double>()(random_) < p_;
  }

  c10::Allocator* below_;
  double p_;
  std::mutex mutex_;  // of random_: any thread may allocate
  std::mt19937_64 random_;
};

ChaosAllocator* installed_chaos = nullptr;

std::string first_difference(const Observed& plain, const Observed& other, const char* what) {
  for (size_t i = 0; i < plain.size(); ++i) {
    if (i >= other.size() || plain[i] != other[i]) {
      return std::string(what) + ": step " + std::to_string(i + 1) + " differs\n  plain " +
             plain[i] + "\n  here  " + (i < other.size() ? other[i] : "missing") + "\n";
    }
  }
  return {};
}

}  // namespace

std::string observe(const std::vector<at::Tensor>& tensors) {
  std::string line;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      line += "undefined ";
      continue;
    }
    at::Tensor flat = tensor.detach();
    flat = flat.is_sparse() ? flat.to_dense() : flat;
    flat = flat.resolve_conj().resolve_neg().contiguous();
    const Digest128 digest = hash_bytes(flat.const_data_ptr(), flat.nbytes());
    line += std::to_string(digest.low) + " ";
  }
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  const at::mt19937_data_pod state = generator->engine().data();
  return line + std::to_string(hash_bytes(state.state_.data(), sizeof state.state_).low) + "/" +
         std::to_string(state.next_) + "/" + std::to_string(state.left_);
}

SessionOptions unstored(const std::string& budget) {
  SessionOptions options;
  options.budget = budget;
  options.store = false;
  return options;
}

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lowtide-test-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Observed run_plain(const Program& program, int steps) {
  const StepFunction step = program();
  Observed observed;
  for (int i = 1; i <= steps; ++i) {
    observed.push_back(observe(step(i)));
  }
  return observed;
}

SessionRun run_session(const Program& program, int steps, SessionOptions options) {
  const StepFunction function = program();
  SessionRun run;
  Session session(std::move(options));
  for (int i = 1; i <= steps; ++i) {
    std::vector<at::Tensor> tensors;
    {
      const Step step = session.step();
      tensors = function(i);
    }
    run.observed.push_back(observe(tensors));
    run.steps.push_back(session.last_step());
  }
  run.stats = session.stats();
  run.plan = session.plan();
  if (session.trace() != nullptr) {
    run.trace = *session.trace();
  }
  return run;
}

int64_t bytes_in_use() { return hooks::TorchCpuAllocator::core().stats().requested.current; }

int64_t smallest_budget(const Program& program) {
  SessionOptions options;
  options.budget = "none";
  options.store = false;
  const SessionRun run = run_session(program, 7, options);
  LOWTIDE_CHECK(run.trace.has_value(), "no trace after the probe");
  const auto memory = hooks::make_torch_cpu_memory();
  runtime::Variant variant(*run.trace, *memory);
  return variant.smallest_peak_bytes() + run.trace->outside_bytes;
}

Chaos::Chaos(double p, uint64_t seed) {
  installed_chaos = new ChaosAllocator(c10::GetCPUAllocator(), p, seed);
  put_cpu_allocator(installed_chaos);
}

Chaos::~Chaos() {
  put_cpu_allocator(installed_chaos->below());
  delete installed_chaos;
  installed_chaos = nullptr;
}

std::string differences(const Program& program, int steps) {
  const Observed plain = run_plain(program, steps);
  std::string text = first_difference(plain, run_plain(program, steps), "plain again");
  const int64_t smallest = smallest_budget(program);
  for (const char* front_end : {"dispatch_key", "record_function"}) {
    setenv("LOWTIDE_FRONT_END", front_end, 1);
    SessionOptions options;
    options.budget = "none";
    options.store = false;
    const std::string at = std::string(" (") + front_end + ")";
    text += first_difference(plain, run_session(program, steps, options).observed,
                             ("no limit" + at).c_str());
    const ScratchDirectory directory;
    options.store = true;
    options.directory = directory.path();
    // Tiny models live in half-empty slabs: their reserved bytes are not exactly repeatable.
    const std::string tight = std::to_string(smallest + smallest / 10 + 256 * 1024);
    options.budget = tight;
    try {
      text += first_difference(plain, run_session(program, steps, options).observed,
                               ("smallest budget, from step 1" + at).c_str());
    } catch (const c10::OutOfMemoryError&) {
      // The floor of eviction lies above the plan's: measure without a limit, then enforce.
      options.budget = "none";
      text += first_difference(plain, run_session(program, steps, options).observed,
                               ("probe" + at).c_str());
      options.budget = tight;
      text += first_difference(plain, run_session(program, steps, options).observed,
                               ("smallest budget, stored trace" + at).c_str());
    }
    for (const double p : {0.05, 0.5}) {
      options.store = false;
      options.budget = "none";
      const StepFunction function = program();
      Session session(options);
      const Chaos chaos(p, 7);
      Observed observed;
      for (int i = 1; i <= steps; ++i) {
        std::vector<at::Tensor> tensors;
        {
          const Step step = session.step();
          tensors = function(i);
        }
        observed.push_back(observe(tensors));
      }
      text += first_difference(plain, observed, ("chaos " + std::to_string(p) + at).c_str());
    }
  }
  unsetenv("LOWTIDE_FRONT_END");
  return text;
}

}  // namespace lowtide::testing
