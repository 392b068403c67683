// One contiguous range of device memory from which blocks are cut, at planned offsets or wherever
// one fits. A range is handed out only when it is free now, whatever a plan says: a wrong plan
// costs bytes, never correctness.
//
// Bands keep streams apart: a block comes out of its stream's band, where the stream's own order
// makes a freed range safe to use again at once. A block that other streams use comes back when
// events recorded on them at the free are complete.
//
// Owns neither memory nor backend. No thread safety: the session calls it under its lock; the
// observer is called from inside, hence in true order, and must not call back. Nothing is thrown
// after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "hooks/device_block.h"
#include "hooks/flat_table.h"
#include "hooks/free_ranges.h"
#include "hooks/pending_frees.h"
#include "hooks/placement_plan.h"

namespace lowtide::hooks {

struct ArenaBlock : DeviceBlock {
  int32_t band = 0;
  DeviceStream stream = nullptr;
};

class ArenaObserver {
 public:
  virtual ~ArenaObserver() = default;
  virtual void on_allocated(const ArenaBlock& block) noexcept = 0;
  virtual void on_freed(const ArenaBlock& block) noexcept = 0;      // by the program
  virtual void on_completed(const ArenaBlock& block) noexcept = 0;  // its range is free again
};

struct ArenaRequest {
  size_t bytes = 0;
  int64_t rounded_bytes = 0;
  DeviceStream stream = nullptr;
  int32_t op = -1;
  int32_t band = 0;
};

class PlacementArena {
 public:
  PlacementArena(const PlacementPlan& plan, void* base, DeviceBackend& backend,
                 ArenaObserver& observer);
  ~PlacementArena();  // waits for freed blocks
  PlacementArena(const PlacementArena&) = delete;
  PlacementArena& operator=(const PlacementArena&) = delete;

  // Null where the range is not free, where no gap of the band fits, or without host memory.
  [[nodiscard]] void* take(const ArenaRequest& request, int64_t offset) noexcept;
  [[nodiscard]] void* take_gap(const ArenaRequest& request) noexcept;
  // A gap that keeps clear of what is needed next, as FreeRanges::take_quiet() has it.
  [[nodiscard]] void* take_gap(const ArenaRequest& request,
                               std::span<const PlannedSlot> needed) noexcept;
  // False: not a live block.
  bool free(void* address) noexcept;
  bool use_on(void* address, DeviceStream stream) noexcept;

  // Ranges whose events are complete become free; `wait`: all of them, after waiting.
  void collect() noexcept {
    if (!pending_.empty()) [[unlikely]]
      collect_pending();
  }
  void wait() noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int64_t free_bytes() const noexcept;  // between blocks
  // No block is live or waits.
  [[nodiscard]] bool idle() const noexcept { return blocks_.size() == 0; }
  [[nodiscard]] int64_t blocks() const noexcept { return static_cast<int64_t>(blocks_.size()); }
  [[nodiscard]] const ArenaBlock* find(const void* address) const noexcept;
  // Live and waiting ones, in no order.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    blocks_.for_each([&](const ArenaBlock* block) { visit(*block); });
  }

 private:
  [[nodiscard]] void* hand_out(const ArenaRequest& request, int64_t offset) noexcept;
  [[nodiscard]] ArenaBlock* make_block() noexcept;
  [[nodiscard]] FreeRanges& band(int32_t index) noexcept {
    return bands_[static_cast<size_t>(index)];
  }
  void complete(ArenaBlock* block) noexcept;
  void collect_pending() noexcept;

  std::byte* const base_;
  const int64_t bytes_;
  ArenaObserver& observer_;
  std::vector<FreeRanges> bands_;
  FlatTable<ArenaBlock> blocks_;  // by address
  std::deque<ArenaBlock> storage_;
  DeviceBlock* unused_ = nullptr;  // linked by `next`
  PendingFrees pending_;
};

}  // namespace lowtide::hooks
