#include "runtime/engine.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <utility>

#include "runtime/saved_holder.h"
#include "runtime/step_watcher.h"

namespace lowtide::runtime {
namespace {

// Read on every save and every backward; changed only while no step runs.
std::shared_ptr<Runtime>& served_runtime() {
  static auto* runtime = new std::shared_ptr<Runtime>();
  return *runtime;
}
FrontEnd* served_front_end = nullptr;
thread_local int no_holders = 0;

class Engine : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (no_holders > 0) {
      return nullptr;
    }
    StepWatcher* const watcher = StepWatcher::current();
    if (watcher != nullptr && !watcher->before_save()) {
      return nullptr;
    }
    const std::shared_ptr<Runtime>& runtime = served_runtime();
    if (runtime == nullptr || !runtime->in_step || !served_front_end->on_this_thread()) {
      return nullptr;
    }
    return std::make_unique<SavedHolder>(runtime, served_front_end->open_frame());
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    StepWatcher* const watcher = StepWatcher::current();
    const bool watched = watcher == nullptr || watcher->owns_backward();
    const std::shared_ptr<Runtime> runtime = watched ? served_runtime() : nullptr;
    // A backward of another thread is no part of the step.
    if (runtime == nullptr || !runtime->in_step || !served_front_end->on_this_thread()) {
      return torch::autograd::Engine::execute(roots, inputs, keep_graph, create_graph,
                                              accumulate_grad, outputs);
    }
    struct BackwardScope {
      BackwardScope(Runtime& r, StepWatcher* w) : runtime(r), watcher(w) {
        runtime.enter_backward();
      }
      ~BackwardScope() {
        runtime.leave_backward();
        if (watcher != nullptr && runtime.backward_depth == 0) {
          watcher->after_backward();
        }
      }
      Runtime& runtime;
      StepWatcher* watcher;
    };
    const BackwardScope scope(*runtime, watcher);
    return torch::autograd::Engine::execute(roots, inputs, keep_graph, create_graph,
                                            accumulate_grad, outputs);
  }
};

torch::autograd::Engine& lowtide_engine() {
  static auto* engine = new Engine();
  return *engine;
}

torch::autograd::Engine& torch_engine() { return torch::autograd::Engine::get_base_engine(); }

}  // namespace

NoHolders::NoHolders() { ++no_holders; }
NoHolders::~NoHolders() { --no_holders; }

void install_engine() { torch::autograd::set_default_engine_stub(&lowtide_engine); }

EngineInstallation::EngineInstallation(std::shared_ptr<Runtime> runtime, FrontEnd& front_end) {
  served_runtime() = std::move(runtime);
  served_front_end = &front_end;
  install_engine();
}

EngineInstallation::~EngineInstallation() {
  torch::autograd::set_default_engine_stub(&torch_engine);
  served_runtime() = nullptr;
  served_front_end = nullptr;
}

}  // namespace lowtide::runtime
