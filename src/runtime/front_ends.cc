#include <ATen/record_function.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "runtime/capture.h"
#include "runtime/internal_guards.h"
#include "runtime/step_watcher.h"

namespace lowtide::runtime {
namespace {

bool graphs_outlive_the_step() {
  Runtime* runtime = Runtime::active();
  return runtime != nullptr && runtime->has_holders();
}

// Between steps: for the writes to what live graphs need, and for the op that begins the next step.
bool must_stay_on_thread() {
  return StepWatcher::current() != nullptr || graphs_outlive_the_step();
}

// Announces an op that no other captured op contains; true = another thread's step is running.
bool is_foreign(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  StepWatcher* const watcher = StepWatcher::current();
  return watcher != nullptr && !watcher->before_op(info, arguments);
}

// A graph of a step on this thread outlives the step: its writes are watched, but what the thread
// computes is not part of any step, not even of one that another thread runs meanwhile.
thread_local bool only_watching = false;

// ---------------------------------------------------------------- dispatch key

// Threads whose ops come here; the fallback may not go while there are any.
std::atomic<int> threads_inside{0};

void include_key_on_this_thread(bool included) {
  if (c10::impl::tls_is_dispatch_key_included(kCaptureKey) != included) {
    c10::impl::tls_set_dispatch_key_included(kCaptureKey, included);
    threads_inside += included ? 1 : -1;
  }
}

void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_capture(kCaptureKey);
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCaptureKey);
  Runtime* runtime = Runtime::active();
  const OpInfo& info = op_info_of(op);
  if (runtime == nullptr) {
    op.redispatchBoxed(below, stack);
    return;
  }
  // First: the op may begin a step.
  const bool foreign = is_foreign(info, torch::jit::last(*stack, info.arguments));
  const bool only_watch = foreign || only_watching || !runtime->in_step;
  if (only_watch && info.writes == 0) {
    op.redispatchBoxed(below, stack);
    return;
  }
  OpFrame frame;
  frame.foreign = foreign;
  frame.only_watch = only_watch;
  try {
    CaptureCore::begin(frame, *runtime, info, torch::jit::last(*stack, info.arguments));
    op.redispatchBoxed(below, stack);
  } catch (...) {
    CaptureCore::abort(frame);
    throw;
  }
  CaptureCore::end(frame, torch::jit::last(*stack, info.returns));
}

class DispatchKeyFrontEnd : public FrontEnd {
 public:
  DispatchKeyFrontEnd()
      : library_(std::make_unique<torch::Library>(torch::Library::IMPL, "_", kCaptureKey, __FILE__,
                                                  __LINE__)) {
    library_->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
  }
  ~DispatchKeyFrontEnd() override {
    include_key_on_this_thread(false);
    if (threads_inside > 0) {
      (void)library_
          .release();  // a pass-through from now on; without it their ops would find no kernel
    }
  }
  void enter_thread() override {
    only_watching = false;
    include_key_on_this_thread(true);
  }
  void leave_thread() override {
    only_watching = graphs_outlive_the_step();
    include_key_on_this_thread(must_stay_on_thread());
  }
  [[nodiscard]] FrontEndKind kind() const override { return FrontEndKind::dispatch_key; }
  [[nodiscard]] bool on_this_thread() const override {
    return c10::impl::tls_is_dispatch_key_included(kCaptureKey) && !only_watching;
  }

 private:
  std::unique_ptr<torch::Library> library_;
};

// ------------------------------------------------------------- record function

thread_local OpFrame* open_frame_of_thread = nullptr;
thread_local at::CallbackHandle callback_of_thread = 0;  // 0 = none

// The frame travels as the callback's context from the start of an op to its end.
struct RecordContext : public at::ObserverContext {
  OpFrame frame;
  bool ours = false;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  Runtime* runtime = Runtime::active();
  if (runtime == nullptr) {
    return nullptr;
  }
  // Kernels' own calls run with autograd excluded: what they are part of is recorded, not they. The
  // program may exclude it too (inference mode, its own guards): then only the writes are watched.
  const bool below_autograd = c10::impl::tls_local_dispatch_key_set().excluded_.has(
      c10::DispatchKey::AutogradFunctionality);
  if (below_autograd && open_frame_of_thread != nullptr) {
    return nullptr;
  }
  const std::optional<c10::OperatorName> name = fn.operator_name();
  if (!name.has_value()) {
    return nullptr;
  }
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  if (!op.has_value()) {
    return nullptr;
  }
  const OpInfo& info = op_info_of(*op);
  const auto inputs = fn.inputs();
  const size_t n = std::min<size_t>(info.arguments, inputs.size());
  const auto arguments = inputs.slice(inputs.size() - n, n);
  const bool foreign =
      open_frame_of_thread == nullptr ? is_foreign(info, arguments) : open_frame_of_thread->foreign;
  const bool only_watch = below_autograd || foreign || only_watching || !runtime->in_step;
  if (only_watch && info.writes == 0) {
    return nullptr;
  }
  auto context = std::make_unique<RecordContext>();
  context->ours = true;
  context->frame.only_watch = only_watch;
  context->frame.foreign = foreign;
  context->frame.parent = open_frame_of_thread;
  if (open_frame_of_thread != nullptr) {
    CaptureCore::becomes_wrapper(*open_frame_of_thread);
  }
  open_frame_of_thread = &context->frame;
  try {
    CaptureCore::begin(context->frame, *runtime, info, arguments);
  } catch (...) {
    // RecordFunction swallows exceptions; the pointer to this frame must not survive it.
    CaptureCore::abort(context->frame);
    open_frame_of_thread = context->frame.parent;
    throw;
  }
  return context;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  auto* ours = static_cast<RecordContext*>(context);
  if (ours == nullptr || !ours->ours) {
    return;
  }
  open_frame_of_thread = ours->frame.parent;
  const std::vector<c10::IValue>& outputs = fn.outputs();
  const size_t n = std::min<size_t>(ours->frame.info->returns, outputs.size());
  if (outputs.empty() && ours->frame.info->returns > 0) {
    CaptureCore::abort(ours->frame);  // the op threw
    return;
  }
  CaptureCore::end(ours->frame, c10::ArrayRef<c10::IValue>(outputs).slice(outputs.size() - n, n));
}

class RecordFunctionFrontEnd : public FrontEnd {
 public:
  ~RecordFunctionFrontEnd() override { stop(); }
  void enter_thread() override {
    only_watching = false;
    if (callback_of_thread == 0) {
      callback_of_thread = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                                          .needsInputs(true)
                                                          .needsOutputs(true)
                                                          .scopes({at::RecordScope::FUNCTION}));
    }
  }
  void leave_thread() override {
    open_frame_of_thread = nullptr;
    only_watching = graphs_outlive_the_step();
    if (!must_stay_on_thread()) {
      stop();
    }
  }
  [[nodiscard]] FrontEndKind kind() const override { return FrontEndKind::record_function; }
  [[nodiscard]] bool on_this_thread() const override {
    return callback_of_thread != 0 && !only_watching;
  }
  [[nodiscard]] OpFrame* open_frame() const override { return open_frame_of_thread; }
  void abandon_open_frames() override {
    for (OpFrame* frame = open_frame_of_thread; frame != nullptr; frame = frame->parent) {
      CaptureCore::abandon(*frame);
    }
  }

 private:
  static void stop() {
    if (callback_of_thread != 0) {
      at::removeCallback(callback_of_thread);
      callback_of_thread = 0;
    }
  }
};

}  // namespace

std::unique_ptr<FrontEnd> make_front_end() {
  const char* setting = std::getenv("LOWTIDE_FRONT_END");
  const std::string_view wanted = setting == nullptr ? "" : setting;
  const bool key_is_free =
      !c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kCaptureKey);
  if (wanted == "record_function" || (wanted.empty() && !key_is_free)) {
    return std::make_unique<RecordFunctionFrontEnd>();
  }
  if (!wanted.empty() && wanted != "dispatch_key") {
    throw InvalidInput("LOWTIDE_FRONT_END=" + std::string(wanted) +
                       " is not a front end. Fix: dispatch_key or record_function");
  }
  if (!key_is_free) {
    throw InvalidInput(
        "LOWTIDE_FRONT_END=dispatch_key: another library owns the dispatch key 'Fake'. Fix: unset "
        "it, or use record_function");
  }
  return std::make_unique<DispatchKeyFrontEnd>();
}

}  // namespace lowtide::runtime
