// The memory of a device core, without its lock, callbacks and events: which block a request gets,
// how blocks are split and merged, when the device is asked and when memory goes back to it (the
// layout of device_core.h).
//
// Owns all blocks and segments, not the backend. No thread safety: the core calls it under its
// lock. Nothing is thrown after construction. Keeps the figures of segments and free blocks in the
// statistics it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "hooks/device_backend.h"
#include "hooks/device_block.h"
#include "hooks/device_stats.h"
#include "hooks/flat_table.h"

namespace lowtide::hooks {

struct PrivatePool;

// Free blocks of one pool and size class.
struct FreeList {
  bool small = false;
  PrivatePool* owner = nullptr;  // null: the common pool
  FreeBlocks blocks;
};

using PoolId = std::pair<unsigned long long, unsigned long long>;  // as torch numbers its pools
using StreamFilter = std::function<bool(DeviceStream)>;

// Memory of its own for whom streams are routed to it: a graph's, which may write to it whenever it
// is replayed.
struct PrivatePool {
  PoolId id;
  int uses = 0;          // begins that no release has ended; 0: segments may go back to the device
  int64_t segments = 0;  // that it holds
  FreeList small{.small = true, .owner = this, .blocks = {}};
  FreeList large{.small = false, .owner = this, .blocks = {}};
};

struct DeviceRequest {
  size_t bytes = 0;  // rounded
  DeviceStream stream = nullptr;
  FreeList* list = nullptr;
};

enum class DeviceMiss : uint8_t { none, limit, backend };

class DevicePool {
 public:
  static constexpr size_t kRounding = 512;
  static constexpr size_t kSmallRequest = size_t{1} << 20;  // at most this: the small pool
  static constexpr size_t kGranule = size_t{2} << 20;  // of segments; a small one is that large
  static constexpr size_t kMediumRequest = size_t{10} << 20;  // below: segments of 20 MiB
  static constexpr size_t kMediumSegment = size_t{20} << 20;
  static constexpr int64_t kNoLimit = INT64_MAX;

  DevicePool(DeviceBackend& backend, DeviceStats& stats) : backend_(backend), stats_(stats) {}
  ~DevicePool();  // gives every segment back, unless abandon() was called
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  [[nodiscard]] static size_t rounded(size_t bytes) noexcept {
    return (bytes + kRounding - 1) / kRounding * kRounding;
  }
  // The segment that the native allocator makes for a request, by its default sizes; at most 2^62
  // bytes are asked for.
  [[nodiscard]] static size_t segment_bytes(size_t requested) noexcept {
    if (requested > kSmallRequest && requested < kMediumRequest) return kMediumSegment;
    return (requested + kGranule - 1) / kGranule * kGranule;
  }
  [[nodiscard]] DeviceRequest request(size_t bytes, DeviceStream stream) noexcept;
  // What a request needs from the device at least when nothing is cached for it.
  [[nodiscard]] static int64_t least_growth(const DeviceRequest& request) noexcept;

  // A block out of the cache, or null.
  [[nodiscard]] DeviceBlock* take(const DeviceRequest& request) noexcept;
  // A block out of a new segment; null, and why, where limit or device do not allow one.
  [[nodiscard]] DeviceBlock* grow(const DeviceRequest& request, DeviceMiss& miss) noexcept;
  // The same after cached segments were given back, no more of them than needed.
  [[nodiscard]] DeviceBlock* grow_in_exchange(const DeviceRequest& request,
                                              DeviceMiss& miss) noexcept;
  // The block is nobody's any more.
  void put(DeviceBlock* block) noexcept;
  // By its first address; null = no block begins there.
  [[nodiscard]] DeviceBlock* find(const void* base) const noexcept;
  template <typename Visit>
  void for_each(Visit visit) const {
    blocks_.for_each(visit);
  }

  // Gives back cached segments of `bytes` together, those that fit best; all when there are not
  // that many.
  void give_back_cached(int64_t bytes) noexcept;
  void set_limit(int64_t reserved_bytes) noexcept;
  [[nodiscard]] int64_t limit() const noexcept { return limit_; }
  // Counts towards `small_pool` or `large_pool` and the sum.
  template <typename Change>
  void account(bool small, Change change) noexcept {
    change(static_cast<PoolStats&>(stats_));
    change(small ? stats_.small_pool : stats_.large_pool);
  }

  // Requests for streams that `filter` accepts are served by this pool until end_route(). False
  // when out of host memory.
  bool begin_route(PoolId id, StreamFilter filter) noexcept;
  void end_route(PoolId id) noexcept;
  // Ends one use; false for a pool that has none.
  bool release_pool(PoolId id) noexcept;

  // The device is gone (a forked child): nothing is given back any more.
  void abandon() noexcept { abandoned_ = true; }

 private:
  struct Route {
    PoolId id;
    StreamFilter filter;
    PrivatePool* pool;
  };

  // By how much one call changes what is free inside segments. Counted once per call, as the native
  // allocator does: a hole that shrinks is not one that goes and one that comes.
  struct HoleChange {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };

  [[nodiscard]] PrivatePool* routed(DeviceStream stream) const noexcept;
  [[nodiscard]] DeviceBlock* new_segment(const DeviceRequest& request, size_t bytes) noexcept;
  // Cuts what the request does not need off the block and counts the block as active.
  void hand_out(DeviceBlock* block, size_t bytes, HoleChange change) noexcept;
  void split(DeviceBlock* block, size_t bytes, HoleChange& change) noexcept;
  void absorb(DeviceBlock* block, DeviceBlock* neighbour) noexcept;
  void enter_list(DeviceBlock* block, HoleChange& change) noexcept;
  void leave_list(DeviceBlock* block, HoleChange& change) noexcept;
  void settle(bool small, const HoleChange& change) noexcept;
  void release(DeviceBlock* whole) noexcept;
  void forget_empty_pools() noexcept;

  DeviceBackend& backend_;
  DeviceStats& stats_;
  FlatTable<DeviceBlock> blocks_;  // by first address
  FreeList small_{.small = true, .owner = nullptr, .blocks = {}};
  FreeList large_{.small = false, .owner = nullptr, .blocks = {}};
  std::map<PoolId, std::unique_ptr<PrivatePool>> private_pools_;
  std::vector<Route> routes_;
  uint64_t segments_made_ = 0;
  int64_t limit_ = kNoLimit;
  bool abandoned_ = false;
};

}  // namespace lowtide::hooks
