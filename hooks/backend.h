// Where a caching core gets its memory: the machine's real allocator behind four calls.
//
// Thread safety: the core calls a backend under its own lock; a backend used by one core needs
// none. Nothing is thrown: failure is a null pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lowtide::hooks {

struct Extent {
  void* base = nullptr;
  size_t bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // `bytes` is a multiple of granularity(); the result is aligned to alignment(). Null when out of
  // memory.
  virtual void* acquire(size_t bytes) noexcept = 0;
  virtual void give_back(void* base, size_t bytes) noexcept = 0;
  // Gives segments back and acquires another, in one: a backend that can move pages spares the
  // faults and the zeroing of new ones, and may keep up to `most_rest` bytes (whole granules) of
  // what is left over as one more segment (`rest`). At no instant is more held than before or
  // after. Null when out of memory; the old segments are gone in any case.
  virtual void* exchange(std::span<const Extent> old, size_t bytes, size_t /*most_rest*/,
                         Extent& /*rest*/) noexcept {
    for (const Extent& extent : old) give_back(extent.base, extent.bytes);
    return acquire(bytes);
  }
  // Segment sizes are multiples of this (a page on the CPU). Divides 64 KiB.
  [[nodiscard]] virtual size_t granularity() const noexcept = 0;
  // Every segment base is aligned to this, a multiple of 64 KiB: a block finds its segment by
  // masking.
  [[nodiscard]] virtual size_t alignment() const noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

}  // namespace lowtide::hooks
