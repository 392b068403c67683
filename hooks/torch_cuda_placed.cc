#include "hooks/torch_cuda_placed.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <utility>

#include "hooks/ledger.h"

namespace lowtide::hooks {
namespace {

std::atomic<PlacedCudaAllocator*> the_allocator{nullptr};

cudaStream_t current_stream(const CudaArena& arena) {
  return c10::cuda::getCurrentCUDAStream(arena.device().index()).stream();
}

}  // namespace

PlacedCudaAllocator::PlacedCudaAllocator(native_cuda::CUDAAllocator* native)
    : BudgetedCudaAllocator(native) {
  the_allocator = this;
}

CudaArena& PlacedCudaAllocator::arena(int device) {
  const std::lock_guard lock(mutex_);
  auto& slot = arenas_[static_cast<size_t>(device)];
  if (slot == nullptr) {
    slot = new CudaArena(device, *native(), watch());
    devices_ = std::max(devices_.load(), device + 1);
  }
  return *slot;
}

CudaArena* PlacedCudaAllocator::owner_of(const void* address) const noexcept {
  for (int device = 0; device < devices_.load(std::memory_order_acquire); ++device) {
    CudaArena* const arena = find_arena(device);
    if (arena != nullptr && arena->session().owns(address)) return arena;
  }
  return nullptr;
}

bool PlacedCudaAllocator::bypassed(int device) noexcept {
  return capturing(device) || pools_filled_[static_cast<size_t>(device)] > 0;
}

bool PlacedCudaAllocator::leave_arenas() {
  for (int device = 0; device < devices_; ++device) {
    CudaArena* const arena = find_arena(device);
    if (arena != nullptr && arena->session().in_use()) return false;
  }
  for (int device = 0; device < devices_; ++device) {
    CudaArena* const arena = find_arena(device);
    if (arena == nullptr) continue;
    arena->session().disengage("the allocator was taken out");
    (void)arena->give_back(/*only_unused=*/false, /*wait=*/true);
  }
  return true;
}

// --- Blocks -----------------------------------------------------------------------------------

c10::DataPtr PlacedCudaAllocator::allocate(size_t bytes) {
  if (devices_.load(std::memory_order_relaxed) == 0 || bytes == 0) {
    return BudgetedCudaAllocator::allocate(bytes);
  }
  const int device = c10::cuda::current_device();
  CudaArena* const arena = CudaLedgerWatch::known(device) ? find_arena(device) : nullptr;
  if (arena == nullptr) return BudgetedCudaAllocator::allocate(bytes);
  if (bypassed(device)) {
    arena->session().bypassed();
    return BudgetedCudaAllocator::allocate(bytes);
  }
  return allocate_on(*arena, bytes);
}

c10::DataPtr PlacedCudaAllocator::allocate_on(CudaArena& arena, size_t bytes) {
  PlacementSession& session = arena.session();
  if (session.wants_memory()) [[unlikely]]
    (void)arena.acquire();
  const cudaStream_t stream = current_stream(arena);
  if (void* const address = session.allocate(bytes, stream, current_op())) {
    const auto* const trace = c10::impl::GPUTrace::get_trace();
    if (trace != nullptr) [[unlikely]]
      (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
    return {address, address, &delete_block, arena.device()};
  }
  c10::DataPtr data = BudgetedCudaAllocator::allocate(bytes);
  if (data.get_deleter() != &delete_block) {
    session.served_elsewhere(data.get(), bytes, stream, current_op());
  }
  return data;
}

c10::DataPtr PlacedCudaAllocator::try_allocate(size_t bytes, bool again) {
  if (again && devices_ > 0) {
    const int device = c10::cuda::current_device();
    CudaArena* const arena = CudaLedgerWatch::known(device) ? find_arena(device) : nullptr;
    if (arena != nullptr && !bypassed(device)) {
      void* const address =
          arena->session().allocate_in_gap(bytes, current_stream(*arena), current_op());
      if (address != nullptr) return {address, address, &delete_block, arena->device()};
    }
  }
  return BudgetedCudaAllocator::try_allocate(bytes, again);
}

void PlacedCudaAllocator::delete_block(void* address) {
  const auto* const trace = c10::impl::GPUTrace::get_trace();
  if (trace != nullptr) [[unlikely]]
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
  CudaArena* const arena = the_allocator.load(std::memory_order_relaxed)->owner_of(address);
  if (arena != nullptr) (void)arena->session().free(address);
}

void PlacedCudaAllocator::raw_delete(void* block) {
  if (owner_of(block) != nullptr) return delete_block(block);
  native()->raw_delete(block);
}

void PlacedCudaAllocator::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  recordStream(data, c10::cuda::CUDAStream(stream));
}

void PlacedCudaAllocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  CudaArena* const arena =
      data.get_deleter() == &delete_block ? owner_of(data.get_context()) : nullptr;
  if (arena == nullptr) return native()->recordStream(data, stream);
  (void)arena->session().use_on(data.get_context(), stream.stream());
}

void* PlacedCudaAllocator::getBaseAllocation(void* block, size_t* bytes) {
  CudaArena* const arena = owner_of(block);
  return native()->getBaseAllocation(arena == nullptr ? block : arena->whole(), bytes);
}

native_cuda::ShareableHandle PlacedCudaAllocator::shareIpcHandle(void* block) {
  CudaArena* const arena = owner_of(block);
  if (arena == nullptr) return native()->shareIpcHandle(block);
  native_cuda::ShareableHandle handle = native()->shareIpcHandle(arena->whole());
  handle.offset += static_cast<const char*>(block) - static_cast<const char*>(arena->whole());
  return handle;
}

#if TORCH_VERSION_MINOR >= 15

std::shared_ptr<c10::GatheredContext> PlacedCudaAllocator::getContextForPointer(const void* block) {
  return owner_of(block) != nullptr ? nullptr : native()->getContextForPointer(block);
}

void PlacedCudaAllocator::annotateMemory(const void* block, const std::string& metadata) {
  if (owner_of(block) == nullptr) native()->annotateMemory(block, metadata);
}

#endif

// --- Memory that is not used ------------------------------------------------------------------

bool PlacedCudaAllocator::give_back_unused(int device) {
  CudaArena* const arena = find_arena(device);
  return arena != nullptr && arena->give_back(/*only_unused=*/false, /*wait=*/true);
}

void PlacedCudaAllocator::emptyCache(c10::MempoolId_t pool) {
  for (int device = 0; device < devices_; ++device) {
    CudaArena* const arena = find_arena(device);
    if (arena != nullptr && !bypassed(device)) {
      (void)arena->give_back(/*only_unused=*/true, /*wait=*/true);
    }
  }
  native()->emptyCache(pool);
}

// --- Figures ----------------------------------------------------------------------------------

c10::CachingDeviceAllocator::DeviceStats PlacedCudaAllocator::getDeviceStats(
    c10::DeviceIndex device) {
  auto stats = native()->getDeviceStats(device);
  CudaArena* const arena = CudaLedgerWatch::known(device) ? find_arena(device) : nullptr;
  if (arena != nullptr) arena->correct(stats);
  return stats;
}

void PlacedCudaAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  BudgetedCudaAllocator::resetAccumulatedStats(device);
  CudaArena* const arena = CudaLedgerWatch::known(device) ? find_arena(device) : nullptr;
  if (arena != nullptr) arena->reset_sums();
}

void PlacedCudaAllocator::resetPeakStats(c10::DeviceIndex device) {
  BudgetedCudaAllocator::resetPeakStats(device);
  CudaArena* const arena = CudaLedgerWatch::known(device) ? find_arena(device) : nullptr;
  if (arena != nullptr) arena->reset_peaks();
}

native_cuda::SnapshotInfo PlacedCudaAllocator::snapshot(c10::MempoolId_t pool,
                                                        bool include_traces) {
  native_cuda::SnapshotInfo info = native()->snapshot(pool, include_traces);
  for (int device = 0; device < devices_; ++device) {
    CudaArena* const arena = find_arena(device);
    if (arena != nullptr) arena->correct(info);
  }
  return info;
}

// --- Pools ------------------------------------------------------------------------------------

void PlacedCudaAllocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                              std::function<bool(cudaStream_t)> filter) {
  BudgetedCudaAllocator::beginAllocateToPool(device, pool, std::move(filter));
  if (CudaLedgerWatch::known(device)) ++pools_filled_[static_cast<size_t>(device)];
}

void PlacedCudaAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  BudgetedCudaAllocator::endAllocateToPool(device, pool);
  if (CudaLedgerWatch::known(device)) --pools_filled_[static_cast<size_t>(device)];
}

}  // namespace lowtide::hooks
