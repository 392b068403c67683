// Who allocated what, when, for which op: the memory events of a step.
//
// A `LedgerSink` receives every allocation and free of a caching core while it is attached, in the
// order they happened, from the thread that made them, outside the core's mutex for allocs and
// *before* the block can be handed out again for frees. Sinks are noexcept. The op that is running
// is a thread-local set by capture (`ScopedOp`), readable by anybody on that thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::hooks {

struct MemoryEvent {
  uint64_t sequence = 0;  // 1, 2, 3, ... per core
  void* address = nullptr;
  int64_t requested_bytes = 0;
  int64_t rounded_bytes = 0;
  int32_t op = -1;         // current_op() of the thread
  void* stream = nullptr;  // that the block belongs to; null on the CPU
};

class LedgerSink {
 public:
  virtual ~LedgerSink() = default;
  virtual void on_alloc(const MemoryEvent& event) noexcept = 0;
  virtual void on_free(const MemoryEvent& event) noexcept = 0;
  // Of allocators that another one hands memory to: it came from the device (> 0 bytes) or went
  // back (< 0).
  virtual void on_reserved(int64_t bytes) noexcept { (void)bytes; }
};

// The op running on this thread, -1 = none.
[[nodiscard]] int32_t current_op() noexcept;
void set_current_op(int32_t op) noexcept;

class ScopedOp {
 public:
  explicit ScopedOp(int32_t op) noexcept : previous_(current_op()) { set_current_op(op); }
  ~ScopedOp() { set_current_op(previous_); }
  ScopedOp(const ScopedOp&) = delete;
  ScopedOp& operator=(const ScopedOp&) = delete;

 private:
  int32_t previous_;
};

}  // namespace lowtide::hooks
