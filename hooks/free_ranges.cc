#include "hooks/free_ranges.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

namespace lowtide::hooks {

FreeRanges::FreeRanges(int64_t begin, int64_t bytes) : bytes_(bytes), free_bytes_(bytes) {
  gaps_.reserve(64);
  if (bytes > 0) gaps_.push_back({begin, begin + bytes});
}

bool FreeRanges::take(int64_t offset, int64_t bytes) noexcept {
  // The last gap that begins at the offset or below.
  const auto above =
      std::upper_bound(gaps_.begin(), gaps_.end(), offset,
                       [](int64_t wanted, const Gap& gap) { return wanted < gap.begin; });
  if (above == gaps_.begin()) return false;
  const auto gap = above - 1;
  if (gap->end - offset < bytes) return false;
  return take_from(static_cast<size_t>(gap - gaps_.begin()), offset, bytes);
}

int64_t FreeRanges::take_best(int64_t bytes) noexcept {
  size_t best = gaps_.size();
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < gaps_.size(); ++i) {
    const int64_t gap_bytes = gaps_[i].end - gaps_[i].begin;
    if (gap_bytes >= bytes && gap_bytes < best_bytes) {
      best = i;
      best_bytes = gap_bytes;
      if (gap_bytes == bytes) break;
    }
  }
  if (best == gaps_.size()) return -1;
  const int64_t offset = gaps_[best].begin;
  return take_from(best, offset, bytes) ? offset : -1;
}

int64_t FreeRanges::take_quiet(int64_t bytes, std::span<const Range> needed) noexcept {
  struct Place {
    int64_t offset = 0;
    int64_t gap_bytes = 0;
    size_t gap = 0;
  };
  constexpr size_t kMostPlaces = 128;  // gaps beyond are not looked at
  std::array<Place, kMostPlaces> places;
  size_t count = 0;
  for (size_t i = 0; i < gaps_.size() && count + 2 <= kMostPlaces; ++i) {
    const auto [begin, end] = gaps_[i];
    if (end - begin < bytes) continue;
    places[count++] = {begin, end - begin, i};
    if (end - begin > bytes) places[count++] = {end - bytes, end - begin, i};
  }
  if (count == 0) return -1;
  for (const Range& range : needed) {
    const auto meets = [&](const Place& place) {
      return place.offset < range.offset + range.bytes && range.offset < place.offset + bytes;
    };
    const auto quiet = std::partition(places.begin(), places.begin() + count, std::not_fn(meets));
    if (quiet == places.begin()) break;  // all are needed at the same time
    count = static_cast<size_t>(quiet - places.begin());
    if (count == 1) break;
  }
  const auto best =
      std::min_element(places.begin(), places.begin() + count, [](const Place& a, const Place& b) {
        return std::pair(a.gap_bytes, a.offset) < std::pair(b.gap_bytes, b.offset);
      });
  return take_from(best->gap, best->offset, bytes) ? best->offset : -1;
}

bool FreeRanges::take_from(size_t index, int64_t offset, int64_t bytes) noexcept {
  if (!make_room()) return false;
  const Gap gap = gaps_[index];
  const bool left = gap.begin < offset, right = offset + bytes < gap.end;
  if (left && right) {
    gaps_[index].end = offset;
    gaps_.insert(gaps_.begin() + static_cast<ptrdiff_t>(index) + 1, {offset + bytes, gap.end});
  } else if (left) {
    gaps_[index].end = offset;
  } else if (right) {
    gaps_[index].begin = offset + bytes;
  } else {
    gaps_.erase(gaps_.begin() + static_cast<ptrdiff_t>(index));
  }
  free_bytes_ -= bytes;
  ++taken_;
  return true;
}

bool FreeRanges::make_room() noexcept {
  // Gaps are at most one more than the pieces between them.
  const size_t most = taken_ + 3;
  if (gaps_.capacity() >= most) return true;
  try {
    gaps_.reserve(2 * most);
  } catch (...) {
    return false;
  }
  return true;
}

void FreeRanges::put(int64_t offset, int64_t bytes) noexcept {
  const auto above =
      std::upper_bound(gaps_.begin(), gaps_.end(), offset,
                       [](int64_t wanted, const Gap& gap) { return wanted < gap.begin; });
  const int64_t end = offset + bytes;
  const bool meets_above = above != gaps_.end() && above->begin == end;
  const bool meets_below = above != gaps_.begin() && (above - 1)->end == offset;
  if (meets_below && meets_above) {
    (above - 1)->end = above->end;
    gaps_.erase(above);
  } else if (meets_below) {
    (above - 1)->end = end;
  } else if (meets_above) {
    above->begin = offset;
  } else {
    gaps_.insert(above, {offset, end});
  }
  free_bytes_ += bytes;
  --taken_;
}

}  // namespace lowtide::hooks
