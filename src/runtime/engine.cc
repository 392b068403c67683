#include "runtime/engine.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/headeronly/version.h>

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/saved_holder.h"
#include "runtime/step_watcher.h"

namespace lowtide::runtime {
namespace {

#if TORCH_VERSION_MINOR >= 15
using NodePointer = c10::intrusive_ptr<torch::autograd::Node>;
#else
using NodePointer = std::shared_ptr<torch::autograd::Node>;
#endif

// Read on every save and every backward; changed only while no step runs.
std::shared_ptr<Runtime>& served_runtime() {
  static auto* runtime = new std::shared_ptr<Runtime>();
  return *runtime;
}
FrontEnd* served_front_end = nullptr;
thread_local int no_holders = 0;

// The engine that was torch's default before: it runs every backward. torch starts worker threads
// for its devices once in a process, for the first engine that runs: another one has none.
torch::autograd::Engine* engine_below = nullptr;

class Engine : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (no_holders > 0) {
      return nullptr;
    }
    std::unique_ptr<torch::autograd::SavedVariableHooks> holder = make_holder();
    return holder != nullptr ? std::move(holder) : engine_below->get_default_saved_variable_hooks();
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    const auto run = [&] {
      return engine_below->execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                   outputs);
    };
    StepWatcher* const watcher = StepWatcher::current();
    const bool watched = watcher == nullptr || watcher->owns_backward();
    const std::shared_ptr<Runtime> runtime = watched ? served_runtime() : nullptr;
    // A backward of another thread is no part of the step.
    if (runtime == nullptr || !runtime->in_step || !served_front_end->on_this_thread()) {
      return run();
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
    return run();
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, NodePointer root,
      torch::autograd::InputBuffer&& input) override {
    return engine_below->execute_with_graph_task(task, std::move(root), std::move(input));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_below->make_anomaly_metadata();
  }
#if TORCH_VERSION_MINOR >= 15
  std::vector<std::unique_ptr<torch::autograd::NodeCreationHook>> get_node_creation_hooks()
      override {
    return engine_below->get_node_creation_hooks();
  }
#endif

 private:
  static std::unique_ptr<torch::autograd::SavedVariableHooks> make_holder() {
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
};

Engine& lowtide_engine() {
  static auto* engine = new Engine();
  return *engine;
}

torch::autograd::Engine& stub_of_lowtide() { return lowtide_engine(); }
torch::autograd::Engine& stub_of_below() { return *engine_below; }

}  // namespace

NoHolders::NoHolders() { ++no_holders; }
NoHolders::~NoHolders() { --no_holders; }

void install_engine() {
  torch::autograd::Engine& current = torch::autograd::Engine::get_default_engine();
  if (&current != &lowtide_engine()) {
    engine_below = &current;
  }
  torch::autograd::set_default_engine_stub(&stub_of_lowtide);
}

EngineInstallation::EngineInstallation(std::shared_ptr<Runtime> runtime, FrontEnd& front_end) {
  served_runtime() = std::move(runtime);
  served_front_end = &front_end;
  install_engine();
}

EngineInstallation::~EngineInstallation() {
  torch::autograd::set_default_engine_stub(&stub_of_below);
  served_runtime() = nullptr;
  served_front_end = nullptr;
}

}  // namespace lowtide::runtime
