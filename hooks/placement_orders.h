// Orders in which placement takes its buffers: a few that are known to do well, and as many blends
// of them as a search cares to try.
//
// Immutable after construction but for `blend`, which draws from a generator of its own: the same
// sequence of calls gives the same orders. One thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "hooks/placement.h"
#include "hooks/placement_sections.h"

namespace lowtide::hooks {

class PlacementOrders {
 public:
  // Orders of the buffers named in `open`; both must outlive this.
  PlacementOrders(std::span<const PlacedBuffer> buffers, int64_t period,
                  const PlacementSections& sections, std::span<const int32_t> open);

  // By falling keys, each a letter; ties by the next key, at last by index. S: size, L: length of
  // life, A: area (both multiplied), P: the largest live sum it is part of, B: birth, later first.
  [[nodiscard]] std::vector<int32_t> by_keys(std::string_view keys) const;
  // Random weights of length, size and either P or, where given, the conflicts of its sections;
  // with some noise.
  [[nodiscard]] std::vector<int32_t> blend(std::span<const double> conflicts = {});

 private:
  [[nodiscard]] double key(int32_t buffer, char letter) const;
  [[nodiscard]] double length(int32_t buffer) const;
  [[nodiscard]] double uniform();  // in [0, 1)

  std::span<const PlacedBuffer> buffers_;
  int64_t period_;
  const PlacementSections& sections_;
  std::span<const int32_t> open_;
  std::vector<double> pressure_;  // by buffer
  std::mt19937_64 random_;
};

}  // namespace lowtide::hooks
