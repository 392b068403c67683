// A ledger per device that follows torch's native CUDA allocator.
//
// The native allocator itself reports: through a trace tracker, which it calls under its lock of
// the device, in true order, also for what graphs, pools and checkpoints do. A tracker cannot be
// taken back, so one is attached for good and listens between `begin()` and `end()`.
//
// `begin()` takes over at one instant of each device: it asks for a snapshot, whose own trace event
// comes under the lock that the snapshot of this device was taken under. What the snapshot holds is
// adopted, what comes after that event is counted, on whatever thread.
//
// Thread safety: begin() and end() one at a time; the rest from any thread. The object lives for
// ever.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>

#include "hooks/device_ledger.h"

namespace lowtide::hooks {

// Hears of the native allocator's blocks as the ledger does: under the native allocator's lock of
// the device. Must call no allocator.
class CudaBlockListener {
 public:
  virtual ~CudaBlockListener() = default;
  virtual void native_allocated(void* address, int64_t requested_bytes) noexcept = 0;
  virtual void native_freed(void* address, int64_t requested_bytes) noexcept = 0;
  virtual void native_completed(void* address, int64_t requested_bytes) noexcept = 0;
};

class CudaLedgerWatch {
 public:
  static constexpr int kMaxDevices = 64;

  // While it lives, what the calling thread allocates is memory to be cut up by Lowtide: neither
  // ledger nor listener hear of that block, from now to its end. One block per device.
  class HiddenBlock {
   public:
    HiddenBlock() noexcept { hiding = true; }
    ~HiddenBlock() { hiding = false; }
    HiddenBlock(const HiddenBlock&) = delete;
    HiddenBlock& operator=(const HiddenBlock&) = delete;

   private:
    friend class CudaLedgerWatch;
    static thread_local bool hiding;
  };

  // Does nothing when it has begun, or CUDA is not in use yet (then to be called again from
  // init()).
  void begin(c10::cuda::CUDACachingAllocator::CUDAAllocator& native);
  void end() noexcept;

  [[nodiscard]] static bool known(int device) noexcept {
    return device >= 0 && device < kMaxDevices;
  }
  // How many devices are followed: 0 before CUDA is in use.
  [[nodiscard]] int devices() const noexcept { return devices_; }
  // REQUIRES: known(device).
  [[nodiscard]] DeviceLedger& ledger(int device) noexcept { return slot(device).ledger; }
  // For good; it must live as long.
  void set_listener(int device, CudaBlockListener* listener) noexcept {
    slot(device).listener = listener;
  }

 private:
  struct Slot {
    DeviceLedger ledger;
    std::atomic<CudaBlockListener*> listener{nullptr};
    std::atomic<void*> hidden{nullptr};
    std::atomic<bool> listening{false};  // begins under the native allocator's lock of the device
  };
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;

  [[nodiscard]] Slot& slot(int device) noexcept { return slots_[static_cast<size_t>(device)]; }
  void on_trace(const Entry& entry) noexcept;
  void on_own_snapshot() noexcept;
  [[nodiscard]] static bool is_hidden(Slot& of, Entry::Action action, void* address) noexcept;

  std::array<Slot, kMaxDevices> slots_;
  std::atomic<int> devices_{0};
  bool has_tracker_ = false;
};

}  // namespace lowtide::hooks
