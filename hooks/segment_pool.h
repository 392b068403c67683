// The memory of a caching core, without its lock and callbacks: which segment or slab block a
// request gets, what is cached, when the backend is asked and when memory goes back to it (the
// layout and growth rule of caching_core.h).
//
// Owns the backend and all segments. No thread safety: the core calls it under its lock. Nothing is
// thrown after construction. Keeps `reserved`, the counts of segments and the exchanges of the
// statistics it is given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hooks/backend.h"
#include "hooks/caching_core.h"
#include "hooks/flat_table.h"
#include "hooks/segment.h"
#include "hooks/segment_cache.h"
#include "hooks/slab_pool.h"

namespace lowtide::hooks {

enum class Miss : uint8_t { none, limit, backend };

struct Grant {
  void* block = nullptr;
  size_t rounded = 0;
};

// A block whose owner has let go of it. `requested` is 0 where there was no such block.
struct Disowned {
  Segment* segment = nullptr;
  size_t requested = 0;
  size_t rounded = 0;
};

class SegmentPool {
 public:
  // Throws InternalError for a backend that cannot serve slabs.
  SegmentPool(std::unique_ptr<Backend> backend, CoreStats& stats);
  ~SegmentPool();  // gives every segment back
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Fills `grant`, or says why it could not after all cached segments were given back.
  Miss take(size_t bytes, Grant& grant) noexcept;
  // Ends the ownership of a block, which stays unavailable until put().
  [[nodiscard]] Disowned disown(void* block) noexcept;
  void put(const Disowned& disowned, void* block) noexcept;

  [[nodiscard]] size_t requested_size(const void* block) const noexcept;
  // Bytes a request of this size takes from the backend when nothing is cached for it.
  [[nodiscard]] size_t segment_bytes_for(size_t bytes) const noexcept;
  [[nodiscard]] int64_t cached_bytes() const noexcept {
    return cache_.bytes() + static_cast<int64_t>(slabs_.spare_bytes());
  }
  void trim() noexcept { shrink_cache(0); }

  void set_limit(int64_t reserved_bytes) noexcept;
  void set_target(int64_t reserved_bytes) noexcept;
  [[nodiscard]] int64_t limit() const noexcept { return limit_; }
  [[nodiscard]] int64_t target() const noexcept { return target_; }
  [[nodiscard]] const char* backend_name() const noexcept { return backend_->name(); }

 private:
  [[nodiscard]] Segment* segment_of(const void* block) const noexcept;
  Segment* obtain(size_t bytes, Miss& miss) noexcept;
  // Segments that no table knows any more, on their way back to the backend.
  struct Spares {
    std::array<Extent, 16> extents{};
    size_t count = 0;
  };
  // A new segment, in exchange for the spares; what is left of them is cached up to the ceiling.
  Segment* grow(size_t bytes, const Spares& spares) noexcept;
  Segment* exchange(size_t bytes, const Spares& spares) noexcept;
  // A segment of the backend's is the pool's from now on. Null where `base` is, or when the books
  // cannot grow: it is given back then.
  Segment* enter(void* base, size_t bytes) noexcept;
  void put_in_cache(Segment* segment) noexcept;
  void cache_spare_slabs() noexcept;
  [[nodiscard]] Extent detach(Segment* segment) noexcept;
  void give_back(const Spares& spares) noexcept;
  // Takes segments out of the cache, the best fitting, until reserved + `growth` <= `ceiling`. The
  // caller gives the last ones back or exchanges them; the rest is with the backend already.
  [[nodiscard]] Spares make_room(int64_t ceiling, int64_t growth) noexcept;
  void shrink_cache(int64_t ceiling) noexcept { give_back(make_room(ceiling, 0)); }

  const std::unique_ptr<Backend> backend_;
  const size_t granularity_;
  CoreStats& stats_;
  FlatTable<Segment> segments_;  // by base
  SegmentCache cache_;
  SlabPool slabs_;
  int64_t limit_ = CachingCore::kNoLimit;
  int64_t target_ = CachingCore::kNoLimit;
};

}  // namespace lowtide::hooks
