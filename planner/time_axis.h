// Values along the time axis of a step, under range additions: a segment tree without pushes over
// buckets of neighbouring instants. Every query and update is O(log n). Not thread-safe.
// Units: bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lowtide::planner {

class TimeAxis {
 public:
  // All values 0.
  explicit TimeAxis(int32_t instants);

  // Adds to instants [begin, end); an empty range is fine.
  void add(int32_t begin, int32_t end, int64_t bytes);
  // The largest value, at least 0.
  [[nodiscard]] int64_t max() const;
  // Sum over all instants of what is above `level` (>= 0).
  [[nodiscard]] int64_t excess(int64_t level) const;
  // First instant, from the left, whose value is above `level`; -1 where there is none.
  [[nodiscard]] int32_t first_above(int64_t level) const;

 private:
  static constexpr int32_t kBucket = 16;
  struct Node {
    int64_t added = 0;  // to the whole node, not yet in its children
    int64_t max = 0;    // with `added`; padding counts as 0 before additions
    int64_t min = 0;
    int64_t sum = 0;
  };

  void add_inside(int32_t bucket, int32_t begin, int32_t end, int64_t bytes);
  void apply(size_t node, int64_t bytes);
  void refresh_above(size_t node);
  [[nodiscard]] int64_t excess_below(size_t node, int64_t level) const;

  int32_t leaves_ = 1;  // buckets, a power of two
  std::vector<Node> nodes_;
  std::vector<int64_t> values_;  // without what nodes above added
  std::vector<int64_t> weight_;  // instants below each node
};

}  // namespace lowtide::planner
