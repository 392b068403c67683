#include "hooks/torch_cuda_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "hooks/callback_slot.h"
#include "hooks/cuda_runtime.h"
#include "hooks/device_pool.h"
#include "hooks/device_replay.h"
#include "hooks/light_lock.h"
#include "hooks/torch_cuda_allocator.h"

namespace lowtide::hooks {
namespace {

// Kernels that compute nothing: what tests run torch's CUDA code over where there is no GPU. Its
// own library says so.
bool device_is_a_double() { return dlsym(RTLD_DEFAULT, "lowtide_double_bytes") != nullptr; }

class TorchCudaMemory final : public TrainingMemory, private LedgerSink {
 public:
  explicit TorchCudaMemory(int device) : device_(device), has_values_(!device_is_a_double()) {
    const CudaRuntime* const runtime = CudaRuntime::find();
    cudaDeviceProp properties{};
    if (runtime != nullptr && runtime->get_device_properties(&properties, device) == cudaSuccess) {
      name_ = std::string(" ") + properties.name;
    }
  }
  ~TorchCudaMemory() override { close(); }

  void open() override {
    if (!TorchCudaAllocator::installed()) {
      TorchCudaAllocator::install();
      installed_ = true;
    }
    TorchCudaAllocator::ledger(device_).set_sink(this);
    const DeviceLedgerStats held = TorchCudaAllocator::ledger(device_).stats();
    const CudaDoorStats door = TorchCudaAllocator::stats(device_);
    const std::lock_guard lock(mutex_);
    stats_.requested.current = held.live.current;
    stats_.rounded.current = door.rounded_bytes;
    stats_.reserved.current = door.reserved_bytes;
    stats_.blocks.current = held.blocks.current;
    reset_counters();
    open_ = true;
  }

  void close() noexcept override {
    if (!std::exchange(open_, false)) return;
    try {
      set_sink(nullptr);
      TorchCudaAllocator::ledger(device_).set_sink(nullptr);
      set_pressure_handler(nullptr);
      set_account(nullptr);
      set_limit(kNoLimit);
      if (installed_) TorchCudaAllocator::uninstall();
    } catch (const std::exception&) {
      // Another allocator was put on top of the door meanwhile: then the door stays, for it.
    }
    installed_ = false;
  }

  [[nodiscard]] std::string device() const override {
    return "cuda:" + std::to_string(device_) + name_;
  }

  [[nodiscard]] CoreStats stats() const noexcept override {
    const std::lock_guard lock(mutex_);
    CoreStats stats = stats_;
    stats.cached = stats.reserved.current - stats.rounded.current;
    return stats;
  }
  void reset_peaks() noexcept override {
    const std::lock_guard lock(mutex_);
    reset_counters();
  }
  // Blocks share segments: what is free around them serves the next requests.
  [[nodiscard]] int64_t held_bytes() const noexcept override { return stats().rounded.current; }
  [[nodiscard]] int64_t rounded_size(int64_t bytes) const noexcept override {
    return bytes <= 0 ? 0 : static_cast<int64_t>(DevicePool::rounded(static_cast<size_t>(bytes)));
  }
  // All of the device's memory that torch tensors lie in is the native allocator's.
  [[nodiscard]] bool counts(const void*) const noexcept override { return true; }
  [[nodiscard]] int64_t capacity_bytes() const noexcept override { return device_memory().total; }
  [[nodiscard]] int64_t outside_bytes() const noexcept override {
    const Device memory = device_memory();
    return std::max<int64_t>(0, memory.total - memory.free - stats().reserved.current);
  }

  int64_t trim() noexcept override {
    const int64_t before = stats().reserved.current;
    try {
      c10::cuda::CUDACachingAllocator::get()->emptyCache({0, 0});
    } catch (const std::exception&) {
      // The device is in trouble: the program's own next call says so.
    }
    return before - stats().reserved.current;
  }
  void set_limit(int64_t reserved_bytes) override {
    TorchCudaAllocator::set_limit(device_, reserved_bytes);
  }
  [[nodiscard]] int64_t limit() const noexcept override {
    try {
      return TorchCudaAllocator::limit(device_);
    } catch (const std::exception&) {
      return kNoLimit;
    }
  }
  void set_reserved_target(int64_t) noexcept override {}

  void set_pressure_handler(PressureHandler* handler) override {
    TorchCudaAllocator::set_pressure_handler(device_, handler);
  }
  void set_sink(LedgerSink* sink) noexcept override { sink_.replace(mutex_, sink); }
  void set_account(std::function<std::string()> account) override {
    TorchCudaAllocator::set_account(device_, std::move(account));
  }

  [[nodiscard]] std::vector<ReplayHold> replay_holds(
      std::span<const ReplayEvent> events) const override {
    return replay_device_holds(events);
  }
  [[nodiscard]] bool capturing() const noexcept override {
    try {
      return TorchCudaAllocator::capturing(device_);
    } catch (const std::exception&) {
      return false;
    }
  }
  [[nodiscard]] bool has_values() const noexcept override { return has_values_; }

 private:
  struct Device {
    int64_t free = 0;
    int64_t total = 0;
  };
  [[nodiscard]] Device device_memory() const noexcept {
    try {
      const auto [free, total] = c10::cuda::CUDACachingAllocator::get()->getMemoryInfo(
          static_cast<c10::DeviceIndex>(device_));
      return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
    } catch (const std::exception&) {
      return {};  // the device is in trouble: the program's own next call says so
    }
  }

  // The ledger's events, under the native allocator's lock of the device.
  void on_alloc(const MemoryEvent& event) noexcept override {
    count(event, 1, [&](LedgerSink& sink, const MemoryEvent& seen) { sink.on_alloc(seen); });
  }
  void on_free(const MemoryEvent& event) noexcept override {
    count(event, -1, [&](LedgerSink& sink, const MemoryEvent& seen) { sink.on_free(seen); });
  }
  void on_reserved(int64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    stats_.reserved.add(bytes);
    ++(bytes > 0 ? stats_.segment_acquires : stats_.segment_returns);
  }

  template <typename Tell>
  void count(MemoryEvent event, int sign, const Tell& tell) noexcept {
    event.rounded_bytes = rounded_size(event.requested_bytes);
    std::unique_lock lock(mutex_);
    stats_.requested.add(sign * event.requested_bytes);
    stats_.rounded.add(sign * event.rounded_bytes);
    stats_.blocks.add(sign);
    ++(sign > 0 ? stats_.alloc_calls : stats_.free_calls);
    LedgerSink* const heard = sink_.get();
    if (heard == nullptr) return;
    sink_.enter();
    lock.unlock();
    tell(*heard, event);
    sink_.leave_unlocked();
  }

  void reset_counters() noexcept {
    for (Counter* counter :
         {&stats_.requested, &stats_.rounded, &stats_.reserved, &stats_.blocks}) {
      counter->peak = counter->current;
    }
  }

  const int device_;
  const bool has_values_;
  std::string name_;
  bool open_ = false;
  bool installed_ = false;   // by us
  mutable LightLock mutex_;  // of what is below
  CoreStats stats_;
  CallbackSlot<LedgerSink> sink_;
};

}  // namespace
}  // namespace lowtide::hooks

lowtide::hooks::TrainingMemory* lowtide_cuda_training_memory(int device, std::string* why_not) {
  try {
    const int devices = c10::cuda::device_count();
    if (device >= 0 && device < std::min(devices, lowtide::hooks::TorchCudaAllocator::kMaxDevices))
      return new lowtide::hooks::TorchCudaMemory(device);
    *why_not = "there is no CUDA device " + std::to_string(device) + " here: torch sees " +
               std::to_string(devices);
  } catch (const std::exception& error) {
    *why_not = error.what();
  }
  return nullptr;
}
