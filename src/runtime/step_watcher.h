// Finds where steps begin and end in a program that does not say so itself.
//
// The capture front ends, the engine and the saved-tensor holders report to the one watcher of the
// process, on the program's own threads and in the middle of its ops; a session that the program
// steps by `Session::step()` has none. Implemented by AutoSession. Nothing is thrown.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <atomic>

#include "runtime/op_info.h"

namespace lowtide::runtime {

class StepWatcher {
 public:
  virtual ~StepWatcher() = default;

  // An op is about to run on a thread where capture is on, outside every other captured op. True:
  // this thread is the one in the step.
  virtual bool before_op(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) noexcept = 0;
  // Autograd is about to save a tensor on this thread. True: in a step, the tensor gets a holder.
  [[nodiscard]] virtual bool before_save() noexcept = 0;
  // A leaf that takes a gradient was saved in the running step.
  virtual void leaf_saved(const c10::StorageImpl* storage) noexcept = 0;
  // Does the engine run that is about to begin on this thread belong to the running step?
  [[nodiscard]] virtual bool owns_backward() const noexcept = 0;
  // Such a run has ended and is not inside another one.
  virtual void after_backward() noexcept = 0;

  // Null where the program steps its session itself.
  [[nodiscard]] static StepWatcher* current() noexcept {
    return current_.load(std::memory_order_acquire);
  }
  // REQUIRES: `watcher` lives as long as the process.
  static void set_current(StepWatcher* watcher) noexcept {
    current_.store(watcher, std::memory_order_release);
  }

 private:
  static inline std::atomic<StepWatcher*> current_{nullptr};
};

}  // namespace lowtide::runtime
