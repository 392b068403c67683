// The CUDAAllocator of door A: passes everything on to the native one, and keeps a limit on
// reserved bytes, before which a handler is asked to free memory. torch_cuda_allocator.h has the
// rules.
//
// Thread safety: all calls, from any thread. The object lives for ever; after `close()` it still
// passes everything on, for storages that remember it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <type_traits>

#include "hooks/caching_core.h"
#include "hooks/callback_slot.h"
#include "hooks/light_lock.h"
#include "hooks/torch_cuda_forwarding.h"
#include "hooks/torch_cuda_watch.h"

namespace lowtide::hooks {

class BudgetedCudaAllocator : public ForwardingCudaAllocator {
 public:
  static constexpr int64_t kNoLimit = CachingCore::kNoLimit;
  struct Counts {
    std::atomic<int64_t> limit_hits{0}, pressure_calls{0}, pressure_bytes{0}, failures{0};
  };

  explicit BudgetedCudaAllocator(native_cuda::CUDAAllocator* native)
      : ForwardingCudaAllocator(native) {}

  void open();   // the ledgers follow from here on, or from when CUDA comes into use
  void close();  // without limits, handlers and ledgers; waits for handlers of other threads

  // What follows REQUIRES CudaLedgerWatch::known(device).
  [[nodiscard]] CudaLedgerWatch& watch() noexcept { return watch_; }
  [[nodiscard]] const Counts& counts(int device) noexcept { return slot(device).counts; }
  void set_limit(int device, int64_t reserved_bytes);
  [[nodiscard]] int64_t limit(int device) noexcept { return slot(device).limit; }
  // The first one is set while no other thread allocates on CUDA.
  void set_pressure_handler(int device, PressureHandler* handler);
  void set_account(int device, std::function<std::string()> account);
  [[nodiscard]] bool capturing(int device) noexcept { return slot(device).captures > 0; }

  c10::DataPtr allocate(size_t bytes) override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
#if TORCH_VERSION_MINOR >= 15
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override;
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
#else
  // Captures are not announced: each use of a pool might be one.
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
#endif

 protected:
  // One try to serve a request; `again`: an earlier one failed, and memory was freed since.
  virtual c10::DataPtr try_allocate(size_t bytes, bool /*again*/) {
    return native()->allocate(bytes);
  }
  // Gives memory back to the native allocator that nobody uses: false where there is none. Not
  // called while a graph is captured.
  virtual bool give_back_unused(int /*device*/) { return false; }

 private:
  struct Slot {
    std::atomic<int64_t> limit{kNoLimit};
    std::atomic<int> captures{0};  // underway
    Counts counts;
    LightLock lock;  // of the handler
    CallbackSlot<PressureHandler> handler;
    // Under mutex_:
    std::function<std::string()> account;  // that is added to ours
    // What the user set, while a limit is in force.
    bool limited = false;
    double users_fraction = 1;
  };
  struct Request {  // that may still be answered by freeing memory
    BudgetedCudaAllocator* allocator;
    int device;
    size_t bytes;
  };
  class PendingRequest;
  class LimitReached;
  class LimitWatch;

  [[nodiscard]] Slot& slot(int device) noexcept { return slots_[static_cast<size_t>(device)]; }
  template <typename Call>
  std::invoke_result_t<Call> budgeted(size_t bytes, const Call& call);
  bool make_room_under_limit(const Request& request);
  bool make_room_on_device(const Request& request, bool ask);
  int64_t ask_handler(const Request& request, int64_t need_bytes);
  [[nodiscard]] int64_t over_limit(const Request& request);
  [[noreturn]] void fail(const std::exception_ptr& failure);
  [[nodiscard]] std::string account(int device);
  void apply_limit(int device);
  void replace_handler(int device, PressureHandler* handler);
  void capture_changed(int device, int by) noexcept;

  std::mutex mutex_;  // of settings; taken before the native allocator's locks
  bool open_ = false;
  CudaLedgerWatch watch_;
  std::array<Slot, CudaLedgerWatch::kMaxDevices> slots_;
  std::atomic<bool> has_handlers_{false};
};

}  // namespace lowtide::hooks
