// One pass over the buffers in a given order: each into a gap between those that lie already and
// overlap it in time, the lowest gap that fits or the tightest.
//
// Pure, thread-safe; time grows with the square of the buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hooks/placement.h"
#include "hooks/placement_sections.h"

namespace lowtide::hooks {

enum class GapRule : uint8_t { lowest, tightest };

// Sets the offsets of the buffers named in `order`, from `base` up.
void place_greedily(std::span<const PlacedBuffer> buffers, const PlacementSections& sections,
                    std::span<const int32_t> order, int64_t base, GapRule rule,
                    std::vector<int64_t>& offsets);

}  // namespace lowtide::hooks
