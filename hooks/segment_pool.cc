#include "hooks/segment_pool.h"

#include <time.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/error.h"
#include "hooks/size_classes.h"

namespace lowtide::hooks {
namespace {

int64_t thread_cpu_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

SegmentPool::SegmentPool(std::unique_ptr<Backend> backend, CoreStats& stats)
    : backend_(std::move(backend)), granularity_(backend_->granularity()), stats_(stats) {
  LOWTIDE_CHECK(backend_->alignment() % kSlabBytes == 0 && kSlabBytes % granularity_ == 0,
                std::string("backend ") + backend_->name() + " cannot serve 64 KiB slabs");
}

SegmentPool::~SegmentPool() {
  segments_.for_each([this](Segment* segment) {
    backend_->give_back(segment->base, segment->bytes);
    delete segment;
  });
}

Miss SegmentPool::take(size_t bytes, Grant& grant) noexcept {
  Miss miss = Miss::none;
  if (bytes > CachingCore::kSmallLimit) {
    Segment* const segment = obtain(segment_bytes_for(bytes), miss);
    if (segment == nullptr) return miss;
    segment->state = Segment::State::large;
    segment->requested = bytes;
    grant = {segment->base, segment->bytes};
    return Miss::none;
  }
  const uint32_t size_class = size_class_of(bytes);
  Segment* slab = slabs_.slab_with_room(size_class);
  if (slab == nullptr) {
    slab = obtain(kSlabBytes, miss);
    if (slab == nullptr) return miss;
    if (!slabs_.adopt(slab, size_class)) {
      put_in_cache(slab);
      return Miss::backend;
    }
  }
  grant = {slabs_.take(slab, bytes), size_class_bytes(size_class)};
  return Miss::none;
}

Segment* SegmentPool::obtain(size_t bytes, Miss& miss) noexcept {
  Segment* cached = cache_.take(bytes);
  if (cached == nullptr && bytes == kSlabBytes) {
    cache_spare_slabs();
    cached = cache_.take(bytes);
  }
  if (cached != nullptr) return cached;
  if (limit_ == CachingCore::kNoLimit && target_ == CachingCore::kNoLimit) {
    cached = cache_.take_up_to(bytes + granularity_, bytes + bytes / 16, granularity_);
    if (cached != nullptr) return cached;
  }
  const auto growth = static_cast<int64_t>(bytes);
  const Spares spares = make_room(std::min(target_, limit_), growth);
  if (stats_.reserved.current + growth > limit_) {
    give_back(spares);
    miss = Miss::limit;
    return nullptr;
  }
  Segment* segment = grow(bytes, spares);
  if (segment == nullptr && cached_bytes() > 0) {
    // The machine has less than the limit allows: the cache may be in the way.
    shrink_cache(0);
    segment = grow(bytes, {});
  }
  if (segment == nullptr) miss = Miss::backend;
  return segment;
}

Segment* SegmentPool::grow(size_t bytes, const Spares& spares) noexcept {
  if (spares.count == 0) return enter(backend_->acquire(bytes), bytes);
  const int64_t start = thread_cpu_ns();
  Segment* const segment = exchange(bytes, spares);
  ++stats_.exchanges;
  stats_.exchange_ns += thread_cpu_ns() - start;
  return segment;
}

Segment* SegmentPool::exchange(size_t bytes, const Spares& spares) noexcept {
  const int64_t room = std::min(target_, limit_) - stats_.reserved.current;
  const auto most_rest =
      static_cast<size_t>(std::max<int64_t>(room - static_cast<int64_t>(bytes), 0));
  Extent rest;
  // A limit need not be whole pages, a segment is.
  void* const base = backend_->exchange({spares.extents.data(), spares.count}, bytes,
                                        most_rest / granularity_ * granularity_, rest);
  Segment* const segment = enter(base, bytes);
  if (rest.bytes != 0) {
    if (Segment* const left = enter(rest.base, rest.bytes); left != nullptr) put_in_cache(left);
  }
  return segment;
}

Segment* SegmentPool::enter(void* base, size_t bytes) noexcept {
  if (base == nullptr) return nullptr;
  std::unique_ptr<Segment> segment(new (std::nothrow) Segment);
  if (segment == nullptr || !segments_.insert(reinterpret_cast<uintptr_t>(base), segment.get())) {
    backend_->give_back(base, bytes);
    return nullptr;
  }
  segment->base = static_cast<std::byte*>(base);
  segment->bytes = bytes;
  stats_.reserved.add(static_cast<int64_t>(bytes));
  ++stats_.segment_acquires;
  return segment.release();
}

void SegmentPool::put_in_cache(Segment* segment) noexcept {
  if (cache_.put(segment)) return;
  const Extent extent = detach(segment);
  backend_->give_back(extent.base, extent.bytes);
}

void SegmentPool::cache_spare_slabs() noexcept {
  while (Segment* const spare = slabs_.take_spare()) put_in_cache(spare);
}

Extent SegmentPool::detach(Segment* segment) noexcept {
  const Extent extent{segment->base, segment->bytes};
  segments_.erase(reinterpret_cast<uintptr_t>(segment->base));
  stats_.reserved.add(-static_cast<int64_t>(segment->bytes));
  ++stats_.segment_returns;
  delete segment;
  return extent;
}

void SegmentPool::give_back(const Spares& spares) noexcept {
  for (size_t i = 0; i < spares.count; ++i) {
    backend_->give_back(spares.extents[i].base, spares.extents[i].bytes);
  }
}

SegmentPool::Spares SegmentPool::make_room(int64_t ceiling, int64_t growth) noexcept {
  Spares spares;
  if (stats_.reserved.current + growth <= ceiling) return spares;
  cache_spare_slabs();
  while (stats_.reserved.current + growth > ceiling) {
    const int64_t excess = stats_.reserved.current + growth - ceiling;
    Segment* const victim = cache_.take_fitting(static_cast<size_t>(excess));
    if (victim == nullptr) break;
    if (spares.count == spares.extents.size()) {
      give_back(std::exchange(spares, {}));
    }
    spares.extents[spares.count++] = detach(victim);
  }
  return spares;
}

Disowned SegmentPool::disown(void* block) noexcept {
  Segment* const segment = segment_of(block);
  if (segment == nullptr) return {};
  if (segment->state == Segment::State::slab) {
    return {segment, slabs_.disown(segment, block), size_class_bytes(segment->size_class)};
  }
  if (segment->state != Segment::State::large || segment->base != block) return {};
  return {segment, std::exchange(segment->requested, 0), segment->bytes};
}

void SegmentPool::put(const Disowned& disowned, void* block) noexcept {
  Segment* const segment = disowned.segment;
  if (segment->state == Segment::State::large || slabs_.put(segment, block)) put_in_cache(segment);
}

size_t SegmentPool::requested_size(const void* block) const noexcept {
  const Segment* const segment = segment_of(block);
  if (segment == nullptr) return 0;
  if (segment->state == Segment::State::slab) return slabs_.requested(segment, block);
  return segment->state == Segment::State::large && segment->base == block ? segment->requested : 0;
}

size_t SegmentPool::segment_bytes_for(size_t bytes) const noexcept {
  if (bytes <= CachingCore::kSmallLimit) return kSlabBytes;
  return (bytes + granularity_ - 1) / granularity_ * granularity_;
}

Segment* SegmentPool::segment_of(const void* block) const noexcept {
  return segments_.find(reinterpret_cast<uintptr_t>(block) / kSlabBytes * kSlabBytes);
}

void SegmentPool::set_limit(int64_t reserved_bytes) noexcept {
  limit_ = std::max<int64_t>(reserved_bytes, 0);
  shrink_cache(limit_);
}

void SegmentPool::set_target(int64_t reserved_bytes) noexcept {
  target_ = std::max<int64_t>(reserved_bytes, 0);
  shrink_cache(target_);
}

}  // namespace lowtide::hooks
