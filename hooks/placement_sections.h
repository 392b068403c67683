// Lifetimes as runs of sections: the stretches of time in which the set of live buffers is largest.
// Where it only shrinks towards a neighbour there is nothing to decide, so those are left out; two
// buffers overlap in time exactly when they share a section.
//
// Immutable after construction, thread-safe. Throws InvalidInput as placement.h says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hooks/placement.h"

namespace lowtide::hooks {

// The first multiple of the alignment that is not below the address.
[[nodiscard]] constexpr int64_t align_up(int64_t address, int64_t alignment) {
  return (address + alignment - 1) / alignment * alignment;
}

class PlacementSections {
 public:
  // One buffer's sections: [first, last), and in a circle [0, wrap) too (last is then the end).
  struct Run {
    int32_t first = 0;
    int32_t last = 0;
    int32_t wrap = 0;
    [[nodiscard]] int32_t sections() const { return last - first + wrap; }
    [[nodiscard]] bool overlaps(const Run& other) const {
      return (first < other.last && other.first < last) || wrap > other.first ||
             other.wrap > first || (wrap > 0 && other.wrap > 0);
    }
    [[nodiscard]] bool operator==(const Run&) const = default;
  };

  PlacementSections(std::span<const PlacedBuffer> buffers, int64_t period);

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(live_bytes_.size()); }
  [[nodiscard]] const Run& run(size_t buffer) const { return runs_[buffer]; }
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  // In time, not only in all sections.
  [[nodiscard]] bool always_live(size_t buffer) const { return always_live_[buffer]; }
  // Bytes alive in each section.
  [[nodiscard]] const std::vector<int64_t>& live_bytes() const { return live_bytes_; }
  [[nodiscard]] int64_t max_live_bytes() const;
  // Sum of all buffers' sections.
  [[nodiscard]] int64_t incidences() const;

  template <class Visit>
  static void for_each_section(const Run& run, Visit visit) {
    for (int32_t section = run.first; section < run.last; ++section) visit(section);
    for (int32_t section = 0; section < run.wrap; ++section) visit(section);
  }

 private:
  std::vector<Run> runs_;
  std::vector<bool> always_live_;
  std::vector<int64_t> live_bytes_;
};

}  // namespace lowtide::hooks
