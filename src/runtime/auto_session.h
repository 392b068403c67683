// The session of a program that knows nothing of Lowtide (`lowtide run -- ./train`): finds the
// steps by itself and drives the life of a SessionImpl with them (design section 5, "Untouched
// LibTorch programs").
//
// start() puts the allocator in, with the budget as its limit, so that parameters are in the budget
// too. The first saved tensor arms its thread: the session is opened and the first step begins. A
// step is complete by the rule of StepBoundary; it ends at the next op with gradients enabled or at
// the next saved tensor, which begins the next step. One thread is in a step at a time; a thread
// that saves while another one is in a step runs plain until that one's thread ends (said once).
//
// Shortage. Until a plan is enforced the limit gives way where nothing is left to evict, so that
// the plan - and with it the smallest reachable budget - becomes known. A budget that no plan meets
// then ends the process with exit code 3 and a message, or is replaced by the smallest reachable
// one; unless the limit never had to give way: then eviction alone has kept the budget, and goes on
// to.
//
// One per process, never destroyed, nothing is ever thrown into the program. Forked children run
// plain. Thread-safe as described.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>

#include "core/error.h"
#include "runtime/run_options.h"
#include "runtime/session_impl.h"
#include "runtime/step_boundary.h"
#include "runtime/step_watcher.h"

namespace lowtide::runtime {

// Exit codes of a program that Lowtide ends itself.
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitOutOfBudget = 3;

class AutoSession final : public StepWatcher {
 public:
  // What is known of a thread that saved a tensor; lives as long as the thread.
  struct Thread;

  // Throws InvalidInput.
  explicit AutoSession(RunOptions options);

  // REQUIRES: no other thread allocates tensors. Capture is on for the calling thread.
  void start();
  // The closing screen, on stderr.
  void finish() noexcept;

  bool before_op(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) noexcept override;
  bool before_save() noexcept override;
  void leaf_saved(const c10::StorageImpl* storage) noexcept override;
  [[nodiscard]] bool owns_backward() const noexcept override;
  void after_backward() noexcept override;

  void thread_ends(Thread& thread) noexcept;
  // Around fork(), on the forking thread.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  bool may_begin(Thread& thread) noexcept;
  bool begin_step() noexcept;
  void open_step();
  void end_step() noexcept;
  void without_plan(const OutOfBudget& error);
  bool give_way(size_t bytes) noexcept;
  bool writes_trained_leaf(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) const;
  void note_peak() noexcept;
  [[nodiscard]] std::string closing_screen();

  RunOptions options_;
  int64_t limit_ = 0;  // until the session is open; bytes
  hooks::CachingCore* core_ = nullptr;
  std::shared_ptr<FrontEnd> front_end_;
  std::unique_ptr<SessionImpl> session_;  // opened at the first saved tensor
  std::shared_ptr<Runtime> runtime_;

  std::atomic<Thread*> stepping_{nullptr};  // the thread that is in a step
  std::atomic<Thread*> last_{nullptr};      // the latest one that was
  std::atomic<uint64_t> generation_{1};     // changes when that thread ends
  std::atomic<bool> off_{false};            // runs plain from now on
  std::atomic<bool> said_concurrent_{false};
  std::atomic<bool> gave_way_{false};
  std::atomic<bool> enforcing_{false};  // the running step follows a plan that must fit
  StepBoundary boundary_;               // of the thread in the step
  std::unordered_set<const c10::StorageImpl*> leaves_;  // saved in the running step
  std::atomic<int64_t> peak_{0};                        // reserved bytes, of the whole run
};

}  // namespace lowtide::runtime

// What the preload shim calls, once, from its constructor: reads the environment and starts. Never
// throws; ends the process (exit code 2) where an option cannot be used.
extern "C" void lowtide_run_start();
