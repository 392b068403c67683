#include "hooks/segment_cache.h"

namespace lowtide::hooks {

bool SegmentCache::put(Segment* segment) noexcept {
  Segment* const head = bins_.find(segment->bytes);
  if (!bins_.insert(segment->bytes, segment)) return false;
  segment->state = Segment::State::cached;
  segment->bin_previous = nullptr;
  segment->bin_next = head;
  if (head != nullptr) head->bin_previous = segment;
  bytes_ += static_cast<int64_t>(segment->bytes);
  return true;
}

Segment* SegmentCache::take(size_t bytes) noexcept {
  Segment* const segment = bins_.find(bytes);
  if (segment != nullptr) remove(segment);
  return segment;
}

Segment* SegmentCache::take_up_to(size_t bytes, size_t most_bytes, size_t granularity) noexcept {
  if (bins_.size() == 0) return nullptr;
  // Sizes are whole granules, so the candidates are few enough to ask for one by one.
  for (size_t size = bytes; size <= most_bytes; size += granularity) {
    if (Segment* const segment = take(size); segment != nullptr) return segment;
  }
  return nullptr;
}

Segment* SegmentCache::take_fitting(size_t bytes) noexcept {
  Segment* best = nullptr;
  bins_.for_each([&](Segment* segment) {
    const bool better = best == nullptr || (best->bytes < bytes ? segment->bytes > best->bytes
                                                                : segment->bytes >= bytes &&
                                                                      segment->bytes < best->bytes);
    if (better) best = segment;
  });
  if (best != nullptr) remove(best);
  return best;
}

void SegmentCache::remove(Segment* segment) noexcept {
  if (segment->bin_next != nullptr) segment->bin_next->bin_previous = segment->bin_previous;
  if (segment->bin_previous != nullptr) {
    segment->bin_previous->bin_next = segment->bin_next;
  } else if (segment->bin_next != nullptr) {
    // Replacing the value of a present key never needs memory.
    static_cast<void>(bins_.insert(segment->bytes, segment->bin_next));
  } else {
    bins_.erase(segment->bytes);
  }
  bytes_ -= static_cast<int64_t>(segment->bytes);
}

}  // namespace lowtide::hooks
