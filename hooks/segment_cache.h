// Segments that nobody uses, kept for reuse: found by size, given back by fit.
// Owns nothing (the core owns segments), no thread safety, nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/flat_table.h"
#include "hooks/segment.h"

namespace lowtide::hooks {

class SegmentCache {
 public:
  // False when out of memory for the index; the segment is then not in the cache.
  [[nodiscard]] bool put(Segment* segment) noexcept;
  // Takes out the most recently cached segment of exactly `bytes`; null = none.
  [[nodiscard]] Segment* take(size_t bytes) noexcept;
  // Takes out a segment of the smallest size in `bytes` .. `most_bytes`, in steps of `granularity`.
  [[nodiscard]] Segment* take_up_to(size_t bytes, size_t most_bytes, size_t granularity) noexcept;
  // Takes out the segment that frees `bytes` with the least to spare, or else frees the most; null
  // = empty. Linear in the number of sizes.
  [[nodiscard]] Segment* take_fitting(size_t bytes) noexcept;

  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }

 private:
  void remove(Segment* segment) noexcept;

  FlatTable<Segment> bins_;  // by size: the newest of that size
  int64_t bytes_ = 0;
};

}  // namespace lowtide::hooks
