#include "planner/thinning.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"

namespace lowtide::planner {

std::vector<size_t> thin(const std::vector<PeakAndTime>& points, size_t most) {
  LOWTIDE_CHECK(most >= 2, "a frontier is thinned to its two ends at least");
  const size_t count = points.size();
  std::vector<size_t> below(count);  // nearest kept points
  std::vector<size_t> above(count);
  std::vector<double> losses(count);
  std::set<std::pair<double, size_t>> inner;
  const auto loss = [&](size_t i) {
    const auto budgets = static_cast<double>(points[above[i]].peak_bytes - points[i].peak_bytes);
    const int64_t paid = points[i].extra_ns;
    const auto more = static_cast<double>(points[below[i]].extra_ns - paid);
    return budgets * more / static_cast<double>(std::max<int64_t>(1, paid));
  };
  for (size_t i = 1; i + 1 < count; ++i) {
    below[i] = i - 1;
    above[i] = i + 1;
    inner.emplace(losses[i] = loss(i), i);
  }
  std::vector<char> kept(count, 1);
  for (size_t left = count; left > most; --left) {
    const size_t gone = inner.begin()->second;
    inner.erase(inner.begin());
    kept[gone] = 0;
    above[below[gone]] = above[gone];
    below[above[gone]] = below[gone];
    for (const size_t i : {below[gone], above[gone]}) {
      if (i == 0 || i + 1 == count) continue;
      inner.erase({losses[i], i});
      inner.emplace(losses[i] = loss(i), i);
    }
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i) {
    if (kept[i] != 0) indices.push_back(i);
  }
  return indices;
}

}  // namespace lowtide::planner
