// One device's placement under door A: the session, the block of the native allocator that its
// arena is cut from, and what ledger, statistics, snapshot and profiler are told of arena blocks.
//
// Thread safety: all calls, from any thread; acquire() and give_back() call the native allocator
// and take no lock before. The object lives for ever. What throws says so.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hooks/arena_figures.h"
#include "hooks/placement_session.h"
#include "hooks/torch_cuda_watch.h"

namespace lowtide::hooks {

class CudaArena final : ArenaObserver, CudaBlockListener {
 public:
  using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;

  CudaArena(int device, Native& native, CudaLedgerWatch& watch);

  [[nodiscard]] PlacementSession& session() noexcept { return session_; }
  [[nodiscard]] c10::Device device() const noexcept {
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device_)};
  }

  // Memory for the session's plan from the native allocator, on the current stream; without it the
  // plan is given up, and stats() says why. False: there was none. Nothing is thrown.
  bool acquire() noexcept;
  // The arena's memory goes back to the native allocator where the session lets it go. False: it
  // did not.
  bool give_back(bool only_unused, bool wait) noexcept;

  // What is reserved once what is cached has been given back, and the blocks at these addresses are
  // gone. Bytes.
  [[nodiscard]] int64_t reserved_without(const std::vector<const void*>& addresses) const;
  // Also tells how far reserved memory has grown.
  void mark_step() noexcept;
  // The most that was reserved at a step mark, since the recording began or the arena was acquired.
  [[nodiscard]] int64_t most_reserved() const noexcept { return most_reserved_; }
  [[nodiscard]] int64_t reserved_at_start() const noexcept { return reserved_at_start_; }
  void watch_reserved() noexcept;  // from here on

  // The native allocator's answers, put right.
  void correct(c10::CachingDeviceAllocator::DeviceStats& stats);
  void correct(c10::cuda::CUDACachingAllocator::SnapshotInfo& snapshot) const;
  void reset_peaks() noexcept;
  void reset_sums() noexcept { figures_.reset_sums(); }
  // The block of the native allocator that the arena is.
  [[nodiscard]] void* whole() const noexcept { return whole_; }

 private:
  void on_allocated(const ArenaBlock& block) noexcept override;
  void on_freed(const ArenaBlock& block) noexcept override;
  void on_completed(const ArenaBlock& block) noexcept override;
  void native_allocated(void* address, int64_t requested_bytes) noexcept override;
  void native_freed(void* address, int64_t requested_bytes) noexcept override;
  void native_completed(void* address, int64_t requested_bytes) noexcept override;

  [[nodiscard]] int64_t reserved() const;
  [[nodiscard]] int64_t block_bytes_at(const void* address) const;
  void report_to_profiler(const ArenaBlock& block, int64_t bytes) const noexcept;

  const int device_;
  Native& native_;
  CudaLedgerWatch& watch_;
  ArenaFigures figures_;
  PlacementSession session_;
  std::mutex mutex_;  // of acquire and give_back
  std::atomic<void*> whole_{nullptr};
  std::atomic<int64_t> most_reserved_{0}, reserved_at_start_{0};
};

}  // namespace lowtide::hooks
