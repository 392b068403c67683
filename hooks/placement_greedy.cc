#include "hooks/placement_greedy.h"

#include <algorithm>
#include <limits>

namespace lowtide::hooks {

void place_greedily(std::span<const PlacedBuffer> buffers, const PlacementSections& sections,
                    std::span<const int32_t> order, int64_t base, GapRule rule,
                    std::vector<int64_t>& offsets) {
  std::vector<int32_t> lying;  // by offset
  lying.reserve(order.size());
  for (const int32_t buffer : order) {
    const int64_t bytes = buffers[buffer].bytes, alignment = buffers[buffer].alignment;
    int64_t gap_begin = base;
    int64_t chosen = -1, chosen_gap = std::numeric_limits<int64_t>::max();
    for (const int32_t other : lying) {
      if (!sections.run(other).overlaps(sections.run(buffer))) continue;
      const int64_t offset = align_up(gap_begin, alignment);
      const int64_t gap = offsets[other] - gap_begin;
      if (offset + bytes <= offsets[other] && gap < chosen_gap) {
        chosen = offset;
        chosen_gap = gap;
        if (rule == GapRule::lowest) break;
      }
      gap_begin = std::max(gap_begin, offsets[other] + buffers[other].bytes);
    }
    offsets[buffer] = chosen >= 0 ? chosen : align_up(gap_begin, alignment);
    const auto place =
        std::upper_bound(lying.begin(), lying.end(), offsets[buffer],
                         [&](int64_t offset, int32_t other) { return offset < offsets[other]; });
    lying.insert(place, buffer);
  }
}

}  // namespace lowtide::hooks
