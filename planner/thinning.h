// Which points of a frontier to keep where there are more than one wants. Pure, deterministic.
// Units: bytes, ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lowtide::planner {

struct PeakAndTime {
  int64_t peak_bytes = 0;
  int64_t extra_ns = 0;
};

// Indices, rising, of at most `most` (>= 2) of the points, which come by rising peak and falling
// time. Where a point is left out, the budgets between it and the next peak above get the slower
// plan below it: again and again the point goes that costs least so, in bytes of budget times the
// share of extra time. Both ends stay, and all of them where there are no more than `most`.
[[nodiscard]] std::vector<size_t> thin(const std::vector<PeakAndTime>& points, size_t most);

}  // namespace lowtide::planner
