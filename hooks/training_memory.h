// The allocator behind a training program's tensors on one device, as a session sees it: figures, a
// limit, who is asked for room, who hears of each block.
//
// One interface over two very different allocators: Lowtide's own caching core on the CPU
// (torch_cpu_memory.h), torch's native one, decorated, on CUDA (torch_cuda_memory.h). Bytes and ns.
// Unless said otherwise calls may come from any thread; `open()` and `close()` come one at a time,
// while no other thread allocates on the device, and all else between them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hooks/caching_core.h"
#include "hooks/ledger.h"
#include "hooks/pressure_handler.h"
#include "hooks/reserved_replay.h"

namespace lowtide::hooks {

class TrainingMemory {
 public:
  static constexpr int64_t kNoLimit = CachingCore::kNoLimit;

  TrainingMemory() = default;
  TrainingMemory(const TrainingMemory&) = delete;
  TrainingMemory& operator=(const TrainingMemory&) = delete;
  virtual ~TrainingMemory() = default;

  // Puts the allocator in; throws lowtide::Error types, and has then changed nothing.
  virtual void open() = 0;
  // Puts back what was there; blocks live on. Without limit, handler, sink and account.
  virtual void close() noexcept = 0;

  // "cpu", "cuda:0 NVIDIA H200".
  [[nodiscard]] virtual std::string device() const = 0;
  // Peaks are since open() or reset_peaks().
  [[nodiscard]] virtual CoreStats stats() const noexcept = 0;
  virtual void reset_peaks() noexcept = 0;
  // The least that what is alive now keeps from going back to the device.
  [[nodiscard]] virtual int64_t held_bytes() const noexcept = 0;
  // Bytes a request of so many takes.
  [[nodiscard]] virtual int64_t rounded_size(int64_t bytes) const noexcept = 0;
  // Is what lies at this address of the device part of reserved bytes?
  [[nodiscard]] virtual bool counts(const void* address) const noexcept = 0;
  // Of the device as a whole; 0 where the machine's own limits count.
  [[nodiscard]] virtual int64_t capacity_bytes() const noexcept { return 0; }
  // In use on the device, by whomever, beside reserved bytes; 0 where there is nothing to ask.
  [[nodiscard]] virtual int64_t outside_bytes() const noexcept = 0;

  // Gives what is cached back to the device. Returns bytes.
  virtual int64_t trim() noexcept = 0;
  // Of reserved bytes; kNoLimit = none.
  virtual void set_limit(int64_t reserved_bytes) = 0;
  [[nodiscard]] virtual int64_t limit() const noexcept = 0;
  // Caches no more than this where it can help it; kNoLimit = freely.
  virtual void set_reserved_target(int64_t reserved_bytes) noexcept = 0;

  // Handler and sink are not owned; null = none. Each call returns when no other thread is inside
  // the one that was replaced.
  virtual void set_pressure_handler(PressureHandler* handler) = 0;
  virtual void set_sink(LedgerSink* sink) noexcept = 0;
  // Extra text for out-of-memory errors, asked for on the failing thread; empty = none.
  virtual void set_account(std::function<std::string()> account) = 0;

  // Ways to hold a step that is run again and again, as hooks::replay_holds(). Pure.
  [[nodiscard]] virtual std::vector<ReplayHold> replay_holds(
      std::span<const ReplayEvent> events) const = 0;

  // Is work of the device being recorded instead of run (a CUDA graph)?
  [[nodiscard]] virtual bool capturing() const noexcept { return false; }
  // False over a stand-in for a device, whose kernels compute nothing: what they leave in memory
  // means nothing and cannot be compared.
  [[nodiscard]] virtual bool has_values() const noexcept { return true; }
};

}  // namespace lowtide::hooks
