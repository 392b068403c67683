// The CUDAAllocator of door A with planned addresses: requests that a placement plan knows are
// served from an arena, which is one block of the native allocator; all others as without.
//
// Straight to the native allocator go requests while a graph is captured on the device or a pool of
// its own is being filled (any thread's), and those of raw_alloc. Arena blocks carry a deleter of
// our own, by which record_stream knows them; the arena makes the events itself. Where torch wants
// a block's allocation (IPC, base address), it gets the arena's.
//
// Not there for arena blocks: memory history (a block has no trace entries and no stack), and
// annotations, which are dropped.
//
// Thread safety and lifetime as BudgetedCudaAllocator. There is one object per process.
#pragma once

#include <array>
#include <atomic>

#include "hooks/torch_cuda_arena.h"
#include "hooks/torch_cuda_budget.h"

namespace lowtide::hooks {

class PlacedCudaAllocator final : public BudgetedCudaAllocator {
 public:
  explicit PlacedCudaAllocator(native_cuda::CUDAAllocator* native);

  // Made when first asked for. REQUIRES CudaLedgerWatch::known(device).
  [[nodiscard]] CudaArena& arena(int device);
  // Null where nobody has asked for it.
  [[nodiscard]] CudaArena* find_arena(int device) const noexcept {
    return arenas_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  }
  // All arenas go back, plans are dropped. False, and nothing has changed: blocks live in one. No
  // other thread is given arena blocks meanwhile.
  [[nodiscard]] bool leave_arenas();

  c10::DataPtr allocate(size_t bytes) override;
  void raw_delete(void* block) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  void* getBaseAllocation(void* block, size_t* bytes) override;
  native_cuda::ShareableHandle shareIpcHandle(void* block) override;
  void emptyCache(c10::MempoolId_t pool) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  native_cuda::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override;
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
#if TORCH_VERSION_MINOR >= 15
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* block) override;
  void annotateMemory(const void* block, const std::string& metadata) override;
#endif

 protected:
  c10::DataPtr try_allocate(size_t bytes, bool again) override;
  bool give_back_unused(int device) override;

 private:
  static void delete_block(void* address);  // of arena blocks

  [[nodiscard]] c10::DataPtr allocate_on(CudaArena& arena, size_t bytes);
  [[nodiscard]] CudaArena* owner_of(const void* address) const noexcept;
  [[nodiscard]] bool bypassed(int device) noexcept;

  std::mutex mutex_;             // of making arenas
  std::atomic<int> devices_{0};  // with an arena object: below this number
  std::array<std::atomic<CudaArena*>, CudaLedgerWatch::kMaxDevices> arenas_{};
  std::array<std::atomic<int>, CudaLedgerWatch::kMaxDevices> pools_filled_{};
};

// The allocator, where it is installed and the device may be asked of it; throws InvalidInput
// otherwise. Defined in torch_cuda_allocator.cc.
[[nodiscard]] PlacedCudaAllocator& installed_allocator(int device);

}  // namespace lowtide::hooks
