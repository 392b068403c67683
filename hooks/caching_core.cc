#include "hooks/caching_core.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "core/error.h"
#include "hooks/callback_slot.h"
#include "hooks/flat_table.h"
#include "hooks/fork_guard.h"
#include "hooks/light_lock.h"
#include "hooks/segment.h"
#include "hooks/segment_cache.h"
#include "hooks/size_classes.h"
#include "hooks/slab_pool.h"

namespace lowtide::hooks {
namespace {

// More than any address space holds; far enough from overflow to add such sizes.
constexpr size_t kMaxRequest = size_t{1} << 48;

void add(Counter& counter, int64_t amount) noexcept {
  counter.current += amount;
  counter.peak = std::max(counter.peak, counter.current);
}

void subtract(Counter& counter, int64_t amount) noexcept { counter.current -= amount; }

// The core whose pressure handler this thread is inside of; null = none.
thread_local const void* handled_core = nullptr;

enum class Miss : uint8_t { none, limit, backend };

struct Grant {
  void* block = nullptr;
  size_t rounded = 0;
};

}  // namespace

struct CachingCore::Impl final : ForkGuarded {
  explicit Impl(std::unique_ptr<Backend> memory_source)
      : backend(std::move(memory_source)), granularity(backend->granularity()) {}

  void lock_before_fork() noexcept override { mutex.lock(); }
  void unlock_in_parent() noexcept override { mutex.unlock(); }
  void unlock_in_child() noexcept override {
    sink.forget_other_threads(0);
    handler.forget_other_threads(own_handler_calls());
    mutex.unlock();
  }

  [[nodiscard]] size_t segment_bytes_for(size_t bytes) const noexcept {
    if (bytes <= kSmallLimit) return kSlabBytes;
    return (bytes + granularity - 1) / granularity * granularity;
  }

  [[nodiscard]] Segment* segment_of(const void* block) const noexcept {
    const auto address = reinterpret_cast<uintptr_t>(block);
    return segments.find(address / kSlabBytes * kSlabBytes);
  }

  [[nodiscard]] int64_t own_handler_calls() const noexcept { return handled_core == this ? 1 : 0; }

  // The calls below need the lock.
  Miss take(size_t bytes, Grant& grant) noexcept;
  void ask_for_room(std::unique_lock<LightLock>& lock, size_t bytes, Miss miss,
                    Grant& grant) noexcept;
  Segment* obtain(size_t bytes, Miss& miss) noexcept;
  Segment* grow(size_t bytes) noexcept;
  [[nodiscard]] int64_t cached_bytes() const noexcept {
    return cache.bytes() + static_cast<int64_t>(slabs.spare_bytes());
  }
  void put_in_cache(Segment* segment) noexcept;
  void cache_spare_slabs() noexcept;
  void give_back(Segment* segment) noexcept;
  // Gives cached segments back, oldest first, until reserved + `growth` <= `ceiling`.
  void shrink_cache(int64_t ceiling, int64_t growth) noexcept;

  mutable LightLock mutex;
  const std::unique_ptr<Backend> backend;
  const size_t granularity;
  FlatTable<Segment> segments;  // by base
  SegmentCache cache;
  SlabPool slabs;
  CoreStats stats;
  int64_t limit = kNoLimit;
  int64_t target = kNoLimit;
  uint64_t sequence = 0;
  int64_t invalid_frees = 0;
  CallbackSlot<LedgerSink> sink;
  CallbackSlot<PressureHandler> handler;
};

Miss CachingCore::Impl::take(size_t bytes, Grant& grant) noexcept {
  Miss miss = Miss::none;
  if (bytes > kSmallLimit) {
    Segment* const segment = obtain(segment_bytes_for(bytes), miss);
    if (segment == nullptr) return miss;
    segment->state = Segment::State::large;
    segment->requested = bytes;
    grant = {segment->base, segment->bytes};
    return Miss::none;
  }
  const uint32_t size_class = size_class_of(bytes);
  Segment* slab = slabs.slab_with_room(size_class);
  if (slab == nullptr) {
    slab = obtain(kSlabBytes, miss);
    if (slab == nullptr) return miss;
    if (!slabs.adopt(slab, size_class)) {
      put_in_cache(slab);
      return Miss::backend;
    }
  }
  grant = {slabs.take(slab, bytes), size_class_bytes(size_class)};
  return Miss::none;
}

Segment* CachingCore::Impl::obtain(size_t bytes, Miss& miss) noexcept {
  Segment* cached = cache.take(bytes);
  if (cached == nullptr && bytes == kSlabBytes) {
    cache_spare_slabs();
    cached = cache.take(bytes);
  }
  if (cached != nullptr) return cached;
  if (limit == kNoLimit && target == kNoLimit) {
    cached = cache.take_up_to(bytes + granularity, bytes + bytes / 16, granularity);
    if (cached != nullptr) return cached;
  }
  const auto growth = static_cast<int64_t>(bytes);
  shrink_cache(std::min(target, limit), growth);
  if (stats.reserved.current + growth > limit) {
    miss = Miss::limit;
    return nullptr;
  }
  Segment* segment = grow(bytes);
  if (segment == nullptr && cached_bytes() > 0) {
    // The machine has less than the limit allows: the cache may be in the way.
    shrink_cache(0, 0);
    segment = grow(bytes);
  }
  if (segment == nullptr) miss = Miss::backend;
  return segment;
}

Segment* CachingCore::Impl::grow(size_t bytes) noexcept {
  std::unique_ptr<Segment> segment(new (std::nothrow) Segment);
  if (segment == nullptr) return nullptr;
  void* const base = backend->acquire(bytes);
  if (base == nullptr) return nullptr;
  if (!segments.insert(reinterpret_cast<uintptr_t>(base), segment.get())) {
    backend->give_back(base, bytes);
    return nullptr;
  }
  segment->base = static_cast<std::byte*>(base);
  segment->bytes = bytes;
  add(stats.reserved, static_cast<int64_t>(bytes));
  ++stats.segment_acquires;
  return segment.release();
}

void CachingCore::Impl::put_in_cache(Segment* segment) noexcept {
  if (!cache.put(segment)) give_back(segment);
}

void CachingCore::Impl::cache_spare_slabs() noexcept {
  while (Segment* const spare = slabs.take_spare()) put_in_cache(spare);
}

void CachingCore::Impl::give_back(Segment* segment) noexcept {
  segments.erase(reinterpret_cast<uintptr_t>(segment->base));
  backend->give_back(segment->base, segment->bytes);
  subtract(stats.reserved, static_cast<int64_t>(segment->bytes));
  ++stats.segment_returns;
  delete segment;
}

void CachingCore::Impl::shrink_cache(int64_t ceiling, int64_t growth) noexcept {
  if (stats.reserved.current + growth <= ceiling) return;
  cache_spare_slabs();
  while (stats.reserved.current + growth > ceiling) {
    Segment* const oldest = cache.take_oldest();
    if (oldest == nullptr) return;
    give_back(oldest);
  }
}

void CachingCore::Impl::ask_for_room(std::unique_lock<LightLock>& lock, size_t bytes, Miss miss,
                                     Grant& grant) noexcept {
  if (miss == Miss::limit) ++stats.limit_hits;
  if (handled_core != nullptr) return;
  const auto growth = static_cast<int64_t>(segment_bytes_for(bytes));
  while (handler.get() != nullptr && growth <= limit) {
    const int64_t need = miss == Miss::limit ? stats.reserved.current + growth - limit : growth;
    PressureHandler* const asked = handler.get();
    handler.enter();
    lock.unlock();
    handled_core = this;
    const int64_t freed = asked->free_memory(need, static_cast<int64_t>(bytes));
    handled_core = nullptr;
    lock.lock();
    handler.leave();
    if (freed > 0) stats.pressure_bytes += freed;
    // Also after a "nothing left": another thread may have freed in the meantime.
    miss = take(bytes, grant);
    if (miss == Miss::none || freed <= 0) return;
  }
}

CachingCore::CachingCore(std::unique_ptr<Backend> backend)
    : impl_(std::make_unique<Impl>(std::move(backend))) {
  LOWTIDE_CHECK(
      impl_->backend->alignment() % kSlabBytes == 0 && kSlabBytes % impl_->granularity == 0,
      std::string("backend ") + impl_->backend->name() + " cannot serve 64 KiB slabs");
  add_fork_guarded(impl_.get());
}

CachingCore::~CachingCore() {
  remove_fork_guarded(impl_.get());
  impl_->segments.for_each([this](Segment* segment) {
    impl_->backend->give_back(segment->base, segment->bytes);
    delete segment;
  });
}

void* CachingCore::allocate(size_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  Impl& core = *impl_;
  std::unique_lock lock(core.mutex);
  Grant grant;
  if (bytes <= kMaxRequest) [[likely]] {
    const Miss miss = core.take(bytes, grant);
    if (miss != Miss::none) [[unlikely]]
      core.ask_for_room(lock, bytes, miss, grant);
  }
  if (grant.block == nullptr) [[unlikely]] {
    ++core.stats.failures;
    return nullptr;
  }
  const auto requested = static_cast<int64_t>(bytes);
  const auto rounded = static_cast<int64_t>(grant.rounded);
  add(core.stats.requested, requested);
  add(core.stats.rounded, rounded);
  add(core.stats.blocks, 1);
  ++core.stats.alloc_calls;
  const uint64_t sequence = ++core.sequence;
  if (LedgerSink* const sink = core.sink.get(); sink != nullptr) {
    core.sink.enter();
    lock.unlock();
    sink->on_alloc({sequence, grant.block, requested, rounded, current_op()});
    core.sink.leave_unlocked();
  }
  return grant.block;
}

void CachingCore::free(void* block) noexcept {
  if (block == nullptr) return;
  Impl& core = *impl_;
  std::unique_lock lock(core.mutex);
  Segment* const segment = core.segment_of(block);
  size_t requested = 0;
  size_t rounded = 0;
  if (segment != nullptr && segment->state == Segment::State::slab) {
    requested = core.slabs.disown(segment, block);
    rounded = size_class_bytes(segment->size_class);
  } else if (segment != nullptr && segment->state == Segment::State::large &&
             segment->base == block) {
    requested = std::exchange(segment->requested, 0);
    rounded = segment->bytes;
  }
  if (requested == 0) [[unlikely]] {
    ++core.invalid_frees;
    return;
  }
  subtract(core.stats.requested, static_cast<int64_t>(requested));
  subtract(core.stats.rounded, static_cast<int64_t>(rounded));
  subtract(core.stats.blocks, 1);
  ++core.stats.free_calls;
  const uint64_t sequence = ++core.sequence;
  if (LedgerSink* const sink = core.sink.get(); sink != nullptr) {
    // The block is nobody's now but not available either: the sink hears of the free first.
    core.sink.enter();
    lock.unlock();
    sink->on_free({sequence, block, static_cast<int64_t>(requested), static_cast<int64_t>(rounded),
                   current_op()});
    lock.lock();
    core.sink.leave();
  }
  if (segment->state == Segment::State::large || core.slabs.put(segment, block)) {
    core.put_in_cache(segment);
  }
}

size_t CachingCore::requested_size(const void* block) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  const Segment* const segment = impl_->segment_of(block);
  if (segment == nullptr) return 0;
  if (segment->state == Segment::State::slab) return impl_->slabs.requested(segment, block);
  return segment->state == Segment::State::large && segment->base == block ? segment->requested : 0;
}

size_t CachingCore::rounded_size(size_t bytes) const noexcept {
  if (bytes == 0 || bytes > kMaxRequest) return bytes;
  if (bytes <= kSmallLimit) return size_class_bytes(size_class_of(bytes));
  return impl_->segment_bytes_for(bytes);
}

CoreStats CachingCore::stats() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  CoreStats stats = impl_->stats;
  stats.cached = impl_->cached_bytes();
  return stats;
}

void CachingCore::reset_peaks() noexcept {
  const std::lock_guard lock(impl_->mutex);
  CoreStats& stats = impl_->stats;
  for (Counter* counter : {&stats.requested, &stats.rounded, &stats.reserved, &stats.blocks}) {
    counter->peak = counter->current;
  }
}

int64_t CachingCore::trim() noexcept {
  const std::lock_guard lock(impl_->mutex);
  const int64_t before = impl_->stats.reserved.current;
  impl_->shrink_cache(0, 0);
  return before - impl_->stats.reserved.current;
}

void CachingCore::set_limit(int64_t reserved_bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->limit = std::max<int64_t>(reserved_bytes, 0);
  impl_->shrink_cache(impl_->limit, 0);
}

int64_t CachingCore::limit() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->limit;
}

void CachingCore::set_reserved_target(int64_t reserved_bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->target = std::max<int64_t>(reserved_bytes, 0);
  impl_->shrink_cache(impl_->target, 0);
}

int64_t CachingCore::reserved_target() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->target;
}

void CachingCore::set_pressure_handler(PressureHandler* handler) noexcept {
  impl_->handler.replace(impl_->mutex, handler, impl_->own_handler_calls());
}

void CachingCore::set_sink(LedgerSink* sink) noexcept { impl_->sink.replace(impl_->mutex, sink); }

int64_t CachingCore::invalid_frees() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->invalid_frees;
}

const char* CachingCore::backend_name() const noexcept { return impl_->backend->name(); }

}  // namespace lowtide::hooks
