// Bounded exact search for a placement within a capacity: branch and bound, bottom-up.
//
// Every placement can be pushed down until each buffer lies at the bottom or on another one, and
// only such are looked at. At each node the lowest address that any open buffer could still have
// is taken, and of the sections that reach down there the hardest. Either one of its buffers lies
// right there, one branch each, or none does: then each of them rests on an open buffer, which
// lifts them all. Equal buffers are tried once. What falls apart in time is searched apart, so
// that a failure here is not answered by trying other orders there. A branch ends where the open
// buffers of a section, each not below where it can begin, no longer fit under the capacity; that
// section counts a conflict, and the next ones are decided where conflicts are many and choices
// few.
//
// Deterministic: conflicts outlive a run, and the same sequence of runs that end by their nodes
// visits the same ones. One search is used by one thread at a time; buffers and sections must
// outlive it. Needs one integer per buffer and section it lives in. Throws nothing but
// std::bad_alloc.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hooks/placement.h"
#include "hooks/placement_sections.h"

namespace lowtide::hooks {

class PlacementSearch {
 public:
  enum class Outcome : uint8_t { packed, impossible, unfinished };
  struct Limits {
    int64_t nodes = 0;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  };

  // Places the buffers named in `open` (indices into `buffers`), from `base` up.
  PlacementSearch(std::span<const PlacedBuffer> buffers, const PlacementSections& sections,
                  std::vector<int32_t> open, int64_t base);

  // `rank`: of each buffer; of several that could lie in one place the lowest is tried first.
  Outcome run(int64_t capacity, std::span<const int32_t> rank, const Limits& limits);

  // After `packed`: of each open buffer, by index into `buffers`; others are untouched.
  [[nodiscard]] const std::vector<int64_t>& offsets() const { return offsets_; }
  // After `impossible`: no placement is lower than this, which is over the capacity.
  [[nodiscard]] int64_t least_possible() const { return least_possible_; }
  [[nodiscard]] int64_t nodes() const { return nodes_; }  // of the last run
  // By section, how often a branch ended there; runs of long ago count less. What ends the most
  // branches is best placed first.
  [[nodiscard]] const std::vector<double>& conflicts() const { return conflicts_; }

 private:
  using Open = std::vector<int32_t>;  // open buffers, by first section
  struct Lift {
    int32_t buffer = 0;
    int64_t from = 0;
  };

  [[nodiscard]] int64_t top(int32_t buffer) const;
  void begin();
  bool pack(const Open& open);
  bool pack_parts(const Open& open);
  [[nodiscard]] int32_t hardest_section_at(const Open& open, int64_t address);
  [[nodiscard]] Open candidates(const Open& open, int32_t section, int64_t address) const;
  bool settle(int32_t buffer, const Open& open);
  bool lift_off_floor(const Open& candidates, const Open& open);
  void take_back(size_t settled, size_t lifts);
  bool lift(int32_t buffer, int64_t address);
  void touch(int32_t buffer);
  bool touched_fit();
  bool fits(int64_t height);
  bool out_of_limits();

  const std::span<const PlacedBuffer> buffers_;
  const PlacementSections& sections_;
  const Open all_;
  const int64_t base_;
  std::vector<std::vector<int32_t>> members_;  // open at the beginning, by section

  std::span<const int32_t> rank_;
  Limits limits_;
  int64_t capacity_ = 0;
  int64_t nodes_ = 0;
  int64_t least_possible_ = 0;
  int32_t depth_ = 0;
  bool stopped_ = false;

  std::vector<int64_t> offsets_;     // settled: final; open: not below
  std::vector<char> settled_;        // by buffer
  std::vector<int64_t> open_bytes_;  // by section
  Open settled_order_;
  std::vector<Lift> lifts_;
  std::vector<int32_t> touched_;        // sections to be judged
  std::vector<double> conflicts_;       // by section
  std::vector<int32_t> candidates_of_;  // by section, at one node
  std::vector<char> is_touched_;
};

}  // namespace lowtide::hooks
