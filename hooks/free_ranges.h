// The free parts of one range of addresses, as a sorted list of gaps: neighbours never touch. Built
// for few gaps (some hundred) and the allocation path: a take or put is one binary search and at
// most one short move of the list.
//
// Offsets and sizes are bytes. No thread safety. Nothing is thrown: where the list cannot grow a
// take fails, and a put never needs memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide::hooks {

class FreeRanges {
 public:
  struct Range {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  FreeRanges(int64_t begin, int64_t bytes);

  // False: part of [offset, offset + bytes) is not free, or there is no memory for the books.
  [[nodiscard]] bool take(int64_t offset, int64_t bytes) noexcept;
  // From the smallest gap that fits, its lower end; -1 where none does.
  [[nodiscard]] int64_t take_best(int64_t bytes) noexcept;
  // From the gap's end that is needed last: the first of `needed` that it meets comes as late as
  // may be, among equals the smallest gap. -1 where none fits.
  [[nodiscard]] int64_t take_quiet(int64_t bytes, std::span<const Range> needed) noexcept;
  // REQUIRES: it was taken. A part of what was taken may come back alone.
  void put(int64_t offset, int64_t bytes) noexcept;

  [[nodiscard]] int64_t free_bytes() const noexcept { return free_bytes_; }
  [[nodiscard]] bool all_free() const noexcept { return free_bytes_ == bytes_; }
  [[nodiscard]] size_t gaps() const noexcept { return gaps_.size(); }
  template <typename Visit>
  void for_each_gap(Visit visit) const {
    for (const Gap& gap : gaps_) visit(gap.begin, gap.end - gap.begin);
  }

 private:
  struct Gap {
    int64_t begin = 0;
    int64_t end = 0;
  };

  [[nodiscard]] bool take_from(size_t gap, int64_t offset, int64_t bytes) noexcept;
  // Room for a gap more than there could be after the next put.
  [[nodiscard]] bool make_room() noexcept;

  std::vector<Gap> gaps_;
  int64_t bytes_ = 0;
  int64_t free_bytes_ = 0;
  size_t taken_ = 0;  // pieces: between two gaps lies at least one
};

}  // namespace lowtide::hooks
