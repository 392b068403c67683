// Sees every operator of a step: records recipes, watches writes, measures.
//
// One core, two front ends chosen at run time (design section 5 "Capture"):
//   dispatch_key     a boxed fallback on a dispatch key that nothing else uses (`Fake`): sits below
//                    autograd and autocast, sees every op of that level once, with its final
//                    arguments
//   record_function  thread-local RecordFunction callbacks: works where the key is taken; sees
//                    composites too and leaves them out
// Both are registered at run time by an object and are gone when it is destroyed. `begin`/`end` are
// called around each op on the thread that runs it; errors of the op itself pass through `abort`.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Event.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/op_info.h"
#include "runtime/runtime_state.h"

namespace lowtide::runtime {

enum class FrontEndKind : uint8_t { dispatch_key, record_function };

// One op in flight, on the stack of the thread that runs it.
class SavedHolder;

struct OpFrame {
  Runtime* runtime = nullptr;
  const OpInfo* info = nullptr;
  uint64_t writes = 0;  // bits of arguments that this call writes
  std::shared_ptr<Tape> tape;
  OpRecord* record = nullptr;  // null when only watched
  Phase phase = Phase::forward;
  int32_t log_op = -1;
  int64_t start_ns = 0;
  int64_t inner_ns = 0;                    // of the ops inside
  std::optional<c10::Event> device_start;  // logged ops of a device: before its work
  uint64_t device_offset = 0;              // of the device's generator before the op
  bool timed = false;
  bool wrapper = false;               // contains other captured ops
  bool only_watch = false;            // its writes matter, no recipe is made
  bool foreign = false;               // of a thread that is not in the step: not logged either
  OpFrame* parent = nullptr;          // record_function only
  std::vector<SavedHolder*> pending;  // saved while the op was still open; settled at its end

  [[nodiscard]] bool writes_argument(size_t i) const { return i < 64 && ((writes >> i) & 1U) != 0; }
};

class CaptureCore {
 public:
  // `arguments`: the op's arguments in schema order. Throws only what a rescue clone throws (out of
  // memory); the op has not run then.
  static void begin(OpFrame& frame, Runtime& runtime, const OpInfo& info,
                    c10::ArrayRef<c10::IValue> arguments);
  static void end(OpFrame& frame, c10::ArrayRef<c10::IValue> results);
  static void abort(OpFrame& frame) noexcept;
  // The step that the open op began in ends before the op does: nothing is recorded of it.
  static void abandon(OpFrame& frame) noexcept;
  // The open op contains another captured op: where those did all of it, only they are recorded.
  static void becomes_wrapper(OpFrame& frame);

 private:
  static void record_results(OpFrame& frame, c10::ArrayRef<c10::IValue> results, int64_t ns);
};

// The registration; capture is on for a thread between `enter_thread` and `leave_thread`. Where
// saved tensors outlive the step, writes are watched on that thread until the next one ends.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;
  virtual void enter_thread() = 0;
  virtual void leave_thread() = 0;
  [[nodiscard]] virtual FrontEndKind kind() const = 0;
  // Is capture on here? (holders are made only then; true on backward threads of a captured step)
  [[nodiscard]] virtual bool on_this_thread() const = 0;
  // Are the ops of a saved tensor's creation still open when autograd saves it?
  [[nodiscard]] virtual OpFrame* open_frame() const { return nullptr; }
  // The next step begins while ops of this thread are open.
  virtual void abandon_open_frames() {}
};

// `wanted`: LOWTIDE_FRONT_END=dispatch_key|record_function, else dispatch_key when the key is free.
[[nodiscard]] std::unique_ptr<FrontEnd> make_front_end();

}  // namespace lowtide::runtime
