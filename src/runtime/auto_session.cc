#include "runtime/auto_session.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/bytes.h"
#include "hooks/torch_cpu_allocator.h"
#include "runtime/budget.h"
#include "runtime/internal_guards.h"
#include "runtime/optional_allocations.h"

namespace lowtide::runtime {

struct AutoSession::Thread {
  AutoSession* session = nullptr;  // null = never began a step
  bool watched = false;            // its ops have been seen since an earlier step, or since start()
  uint64_t plain_in = 0;           // the generation in which it collided with another thread's step
  ~Thread();
};

namespace {

// Of the calling thread. Apart, as the objects of a thread that ends may still be asked for.
thread_local bool thread_is_over = false;

AutoSession::Thread& this_thread() {
  thread_local AutoSession::Thread thread;
  return thread;
}

constexpr int kMostRetries = 4;

void say(const std::string& line) { std::fprintf(stderr, "lowtide: %s\n", line.c_str()); }

// The program is in the middle of an op and other threads may run: nothing of it can be unwound and
// its exit handlers cannot be trusted, but what it has printed is not lost. (Flushing every stream
// would wait for a thread that reads stdin.)
[[noreturn]] void leave_process(int exit_code, const std::string& line) {
  say(line);
  std::fflush(stdout);
  _exit(exit_code);
}

// A captured op of this thread is running: what it saves belongs to it.
bool inside_captured_op() { return c10::impl::tls_is_dispatch_key_excluded(kCaptureKey); }

bool is_trained_leaf(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr && meta->requires_grad_ && meta->grad_fn_ == nullptr &&
         meta->grad_.defined();
}

}  // namespace

AutoSession::Thread::~Thread() {
  thread_is_over = true;
  if (session != nullptr) {
    session->thread_ends(*this);
  }
}

AutoSession::AutoSession(RunOptions options) : options_(std::move(options)) {
  const int64_t budget = budget_from_text(options_.session.budget);
  limit_ = limit_within(budget, parse_bytes(options_.session.reserve, "reserve"));
  if (options_.session.budget == "auto" && options_.session.plan_file.empty()) {
    // What is available falls as the program goes on: it is asked once.
    options_.session.budget = std::to_string(budget);
  }
}

void AutoSession::start() {
  front_end_ = make_front_end();
  front_end_->enter_thread();
  this_thread().watched = true;
  core_ = &hooks::TorchCpuAllocator::core();
  hooks::TorchCpuAllocator::install();
  hooks::TorchCpuAllocator::set_last_resort([this](size_t bytes) { return give_way(bytes); });
  core_->set_limit(limit_);
  StepWatcher::set_current(this);
  install_engine();
}

// ------------------------------------------------------------------ where steps begin and end

bool AutoSession::before_op(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) noexcept {
  if (stepping_.load(std::memory_order_relaxed) != &this_thread()) {
    return false;
  }
  if (boundary_.complete()) {
    if (c10::GradMode::is_enabled() && runtime_->backward_depth == 0) {
      end_step();
      return false;
    }
  } else if (info.writes != 0 && writes_trained_leaf(info, arguments)) {
    boundary_.leaf_written();
  }
  return true;
}

bool AutoSession::before_save() noexcept {
  if (off_.load(std::memory_order_relaxed) || thread_is_over) {
    return false;
  }
  Thread& thread = this_thread();
  if (stepping_.load(std::memory_order_acquire) == &thread) {
    if (!boundary_.complete() || runtime_->backward_depth > 0 || inside_captured_op()) {
      return true;
    }
    end_step();
  }
  return may_begin(thread) && begin_step();
}

bool AutoSession::may_begin(Thread& thread) noexcept {
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (thread.plain_in == generation || inside_captured_op()) {
    return false;
  }
  Thread* nobody = nullptr;
  if (stepping_.compare_exchange_strong(nobody, &thread, std::memory_order_acq_rel)) {
    return true;
  }
  thread.plain_in = generation;
  if (!said_concurrent_.exchange(true)) {
    say("a second thread trains while a step is running: it runs plain, its bytes count as "
        "resident");
  }
  return false;
}

bool AutoSession::begin_step() noexcept {
  Thread& thread = this_thread();
  try {
    open_step();
    thread.session = this;
    last_.store(&thread, std::memory_order_release);
    boundary_.begin_step();
    leaves_.clear();
    return true;
  } catch (const Mismatch& error) {
    leave_process(kExitBadInput, error.message());
  } catch (const InvalidInput& error) {
    leave_process(kExitBadInput, error.message());
  } catch (const FileError& error) {
    leave_process(kExitBadInput, error.message());
  } catch (const std::exception& error) {
    say(std::string(error.what()) + "; the program runs plain from here on, without a budget");
  }
  off_ = true;
  core_->set_limit(hooks::CachingCore::kNoLimit);
  stepping_ = nullptr;
  return false;
}

void AutoSession::open_step() {
  // A thread that was not watched until now: the op that saves is past the point of capture.
  const bool whole = std::exchange(this_thread().watched, true);
  front_end_->enter_thread();
  front_end_->abandon_open_frames();
  note_peak();
  for (int attempt = 0;; ++attempt) {
    try {
      if (session_ == nullptr) {
        session_ = std::make_unique<SessionImpl>(options_.session, front_end_);
        runtime_ = session_->runtime();
        runtime_->on_mismatch = [](const std::string& text) { leave_process(kExitBadInput, text); };
      }
      core_->set_limit(session_->limit_bytes());
      if (!session_->begin_step(whole)) {
        throw InternalError("the session would not begin a step");
      }
      break;
    } catch (const OutOfBudget& error) {
      if (attempt >= kMostRetries) {
        leave_process(kExitOutOfBudget, error.message());
      }
      without_plan(error);
    }
  }
  enforcing_ = whole && session_->phase() == SessionPhase::enforce;
}

void AutoSession::end_step() noexcept {
  session_->end_step();
  enforcing_ = enforcing_ && session_->phase() == SessionPhase::enforce;
  stepping_.store(nullptr, std::memory_order_release);
}

bool AutoSession::writes_trained_leaf(const OpInfo& info,
                                      c10::ArrayRef<c10::IValue> arguments) const {
  const auto trained = [this](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return false;
    }
    if (is_trained_leaf(tensor)) {
      return true;
    }
    // The same bytes through an alias that knows nothing of gradients (`parameter.data()`).
    return boundary_.had_backward() && tensor.has_storage() &&
           leaves_.contains(tensor.storage().unsafeGetStorageImpl());
  };
  for (size_t i = 0; i < std::min<size_t>(arguments.size(), 64); ++i) {
    if (((info.writes >> i) & 1U) == 0) {
      continue;
    }
    const c10::IValue& value = arguments[i];
    if (value.isTensor() && trained(value.toTensor())) {
      return true;
    }
    if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      if (std::any_of(list.begin(), list.end(), trained)) {
        return true;
      }
    }
  }
  return false;
}

void AutoSession::leaf_saved(const c10::StorageImpl* storage) noexcept {
  if (stepping_.load(std::memory_order_relaxed) == &this_thread()) {
    leaves_.insert(storage);
  }
}

bool AutoSession::owns_backward() const noexcept {
  // A step's backward may run on another thread than its forward; that of a thread which trains
  // itself is its own.
  const Thread* const stepping = stepping_.load(std::memory_order_acquire);
  if (off_.load(std::memory_order_relaxed) || stepping == nullptr || thread_is_over) {
    return false;
  }
  const Thread& thread = this_thread();
  return stepping == &thread || (thread.session == nullptr && thread.plain_in == 0);
}

void AutoSession::after_backward() noexcept {
  if (stepping_.load(std::memory_order_relaxed) == &this_thread()) {
    boundary_.backward_ended();
  }
}

void AutoSession::thread_ends(Thread& thread) noexcept {
  if (off_) {
    return;
  }
  if (stepping_.load(std::memory_order_acquire) == &thread) {
    end_step();
  }
  Thread* expected = &thread;
  if (last_.compare_exchange_strong(expected, nullptr)) {
    ++generation_;
  }
}

// ---------------------------------------------------------------------- shortage

void AutoSession::without_plan(const OutOfBudget& error) {
  if (session_ != nullptr && !gave_way_) {
    say("no plan meets the budget of " + format_bytes(error.budget_bytes()) +
        ": eviction has kept it so far and goes on to, on top of the smallest plan");
    session_->rely_on_eviction();
    return;
  }
  if (options_.stop_when_infeasible) {
    leave_process(kExitOutOfBudget, error.message() + " (or --on-infeasible=continue)");
  }
  const int64_t smallest = error.smallest_reachable_bytes();
  if (smallest < 0) {
    throw InternalError(error.message());
  }
  say("a budget of " + format_bytes(error.budget_bytes()) +
      " cannot be met; going on as low as is reachable, " + format_bytes(smallest));
  options_.session.budget = std::to_string(smallest);
  if (session_ != nullptr) {
    session_->change_budget(smallest);
  }
}

bool AutoSession::give_way(size_t bytes) noexcept {
  const int64_t limit = core_->limit();
  if (off_ || OptionalAllocations::active() || limit == hooks::CachingCore::kNoLimit) {
    return false;
  }
  const int64_t reserved = core_->stats().reserved.current;
  const auto growth =
      static_cast<int64_t>(bytes <= hooks::CachingCore::kSmallLimit ? hooks::CachingCore::kSlabBytes
                                                                    : core_->rounded_size(bytes));
  if (reserved + growth <= limit) {
    return false;  // the machine's memory is at its end, not the budget
  }
  if (options_.stop_when_infeasible && enforcing_) {
    leave_process(kExitOutOfBudget, "cannot allocate " + format_bytes(static_cast<int64_t>(bytes)) +
                                        " within the budget. " + session_->account_text() +
                                        ", or --on-infeasible=continue");
  }
  if (!gave_way_.exchange(true)) {
    say(options_.stop_when_infeasible
            ? "nothing is left to evict: over the budget until the plan is known"
            : "nothing is left to evict: going over the budget");
  }
  // A request above the whole limit was refused before anything was evicted for it: first room for
  // it alone, then, if it still does not fit, beside what cannot be evicted.
  core_->set_limit(growth > limit ? growth : reserved + growth);
  return true;
}

// ------------------------------------------------------------------------ fork and exit

void AutoSession::before_fork() noexcept {
  if (runtime_ != nullptr) {
    runtime_->mutex.lock();
  }
}

void AutoSession::after_fork_in_parent() noexcept {
  if (runtime_ != nullptr) {
    runtime_->mutex.unlock();
  }
}

void AutoSession::after_fork_in_child() noexcept {
  off_ = true;
  Runtime::set_active(nullptr);
  if (runtime_ != nullptr) {
    runtime_->in_step = false;
    runtime_->log = nullptr;
    runtime_->mutex.unlock();
  }
  core_->set_sink(nullptr);
  core_->set_limit(hooks::CachingCore::kNoLimit);
  core_->set_reserved_target(hooks::CachingCore::kNoLimit);
  core_->set_pressure_handler(nullptr);
}

void AutoSession::note_peak() noexcept {
  peak_ = std::max(peak_.load(), core_->stats().reserved.peak);
}

std::string AutoSession::closing_screen() {
  if (session_ == nullptr) {
    return "lowtide: the program ran no training step that could be watched\n";
  }
  if (stepping_ != nullptr) {
    return "lowtide: the program ended in a step of another thread: no closing figures\n";
  }
  std::string screen = session_->report();
  const int64_t limit = session_->limit_bytes();
  const bool kept = peak_ <= limit;
  return screen + "  whole run             peak " + format_bytes(peak_) + " reserved, " +
         (kept ? std::string("within the budget")
               : format_bytes(peak_ - limit) + " over the budget of its steps") +
         '\n';
}

void AutoSession::finish() noexcept {
  if (off_) {
    return;  // said why when it happened, or a forked child
  }
  try {
    note_peak();
    std::fputs(closing_screen().c_str(), stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lowtide: no closing screen: %s\n", error.what());
  }
}

}  // namespace lowtide::runtime
