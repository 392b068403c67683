// Where the mappings meet that a segment is sewn together from. The kernel moves pages only within
// one mapping, so who moves a segment's pages moves them piece by piece.
//
// Bounded: a process may have 65,530 mappings by default, and a program that runs out of them can
// map nothing any more. No thread safety (the core's lock guards it). Nothing is thrown.
#pragma once

#include <array>
#include <cstddef>

#include "hooks/flat_table.h"

namespace lowtide::hooks {

struct Pieces {
  static constexpr size_t kMost = 16;
  std::array<size_t, kMost> bytes{};  // in address order; together they are the segment
  size_t count = 0;

  void add(size_t piece_bytes) noexcept { bytes[count++] = piece_bytes; }
  // Forgets what lies beyond the first `kept_bytes`.
  void cut(size_t kept_bytes) noexcept;
};

class MappingPieces {
 public:
  MappingPieces() = default;
  MappingPieces(const MappingPieces&) = delete;
  MappingPieces& operator=(const MappingPieces&) = delete;
  ~MappingPieces();

  // One piece where nothing was recorded.
  [[nodiscard]] Pieces of(const void* base, size_t bytes) const noexcept;
  // No matter where memory for it is lacking: moving such a segment will then fail, and it is
  // mapped anew.
  void record(const void* base, const Pieces& pieces) noexcept;
  void forget(const void* base) noexcept;
  // May another segment be sewn together?
  [[nodiscard]] bool has_room() const noexcept { return table_.size() < kMostSegments; }

 private:
  static constexpr size_t kMostSegments = 1024;
  FlatTable<Pieces> table_;  // by base; segments of more than one piece only
};

}  // namespace lowtide::hooks
