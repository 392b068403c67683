#include "hooks/caching_core.h"

#include <mutex>
#include <utility>

#include "hooks/callback_slot.h"
#include "hooks/fork_guard.h"
#include "hooks/light_lock.h"
#include "hooks/segment_pool.h"
#include "hooks/size_classes.h"

namespace lowtide::hooks {
namespace {

// More than any address space holds; far enough from overflow to add such sizes.
constexpr size_t kMaxRequest = size_t{1} << 48;

// The core whose pressure handler this thread is inside of; null = none.
thread_local const void* handled_core = nullptr;

}  // namespace

struct CachingCore::Impl final : ForkGuarded {
  explicit Impl(std::unique_ptr<Backend> backend) : pool(std::move(backend), stats) {}

  void lock_before_fork() noexcept override { mutex.lock(); }
  void unlock_in_parent() noexcept override { mutex.unlock(); }
  void unlock_in_child() noexcept override {
    sink.forget_other_threads(0);
    handler.forget_other_threads(own_handler_calls());
    mutex.unlock();
  }

  [[nodiscard]] int64_t own_handler_calls() const noexcept { return handled_core == this ? 1 : 0; }

  // The rungs of the ladder above the cache: asks the handler until the request fits or nothing is
  // left to free. The lock is held, but not while the handler runs.
  void ask_for_room(std::unique_lock<LightLock>& lock, size_t bytes, Miss miss,
                    Grant& grant) noexcept;

  mutable LightLock mutex;  // of everything below
  CoreStats stats;
  SegmentPool pool;
  uint64_t sequence = 0;
  int64_t invalid_frees = 0;
  CallbackSlot<LedgerSink> sink;
  CallbackSlot<PressureHandler> handler;
};

void CachingCore::Impl::ask_for_room(std::unique_lock<LightLock>& lock, size_t bytes, Miss miss,
                                     Grant& grant) noexcept {
  if (miss == Miss::limit) ++stats.limit_hits;
  if (handled_core != nullptr) return;
  const auto growth = static_cast<int64_t>(pool.segment_bytes_for(bytes));
  while (handler.get() != nullptr && growth <= pool.limit()) {
    const int64_t need =
        miss == Miss::limit ? stats.reserved.current + growth - pool.limit() : growth;
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
    miss = pool.take(bytes, grant);
    if (miss == Miss::none || freed <= 0) return;
  }
}

CachingCore::CachingCore(std::unique_ptr<Backend> backend)
    : impl_(std::make_unique<Impl>(std::move(backend))) {
  add_fork_guarded(impl_.get());
}

CachingCore::~CachingCore() { remove_fork_guarded(impl_.get()); }

void* CachingCore::allocate(size_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  Impl& core = *impl_;
  std::unique_lock lock(core.mutex);
  Grant grant;
  if (bytes <= kMaxRequest) [[likely]] {
    const Miss miss = core.pool.take(bytes, grant);
    if (miss != Miss::none) [[unlikely]]
      core.ask_for_room(lock, bytes, miss, grant);
  }
  if (grant.block == nullptr) [[unlikely]] {
    ++core.stats.failures;
    return nullptr;
  }
  const auto requested = static_cast<int64_t>(bytes);
  const auto rounded = static_cast<int64_t>(grant.rounded);
  core.stats.requested.add(requested);
  core.stats.rounded.add(rounded);
  core.stats.blocks.add(1);
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
  const Disowned gone = core.pool.disown(block);
  if (gone.requested == 0) [[unlikely]] {
    ++core.invalid_frees;
    return;
  }
  const auto requested = static_cast<int64_t>(gone.requested);
  const auto rounded = static_cast<int64_t>(gone.rounded);
  core.stats.requested.add(-requested);
  core.stats.rounded.add(-rounded);
  core.stats.blocks.add(-1);
  ++core.stats.free_calls;
  const uint64_t sequence = ++core.sequence;
  if (LedgerSink* const sink = core.sink.get(); sink != nullptr) {
    // The block is nobody's now but not available either: the sink hears of the free first.
    core.sink.enter();
    lock.unlock();
    sink->on_free({sequence, block, requested, rounded, current_op()});
    lock.lock();
    core.sink.leave();
  }
  core.pool.put(gone, block);
}

size_t CachingCore::requested_size(const void* block) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.requested_size(block);
}

size_t CachingCore::rounded_size(size_t bytes) const noexcept {
  if (bytes == 0 || bytes > kMaxRequest) return bytes;
  if (bytes <= kSmallLimit) return size_class_bytes(size_class_of(bytes));
  return impl_->pool.segment_bytes_for(bytes);
}

CoreStats CachingCore::stats() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  CoreStats stats = impl_->stats;
  stats.cached = impl_->pool.cached_bytes();
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
  impl_->pool.trim();
  return before - impl_->stats.reserved.current;
}

void CachingCore::set_limit(int64_t reserved_bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.set_limit(reserved_bytes);
}

int64_t CachingCore::limit() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.limit();
}

void CachingCore::set_reserved_target(int64_t reserved_bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.set_target(reserved_bytes);
}

int64_t CachingCore::reserved_target() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.target();
}

void CachingCore::set_pressure_handler(PressureHandler* handler) noexcept {
  impl_->handler.replace(impl_->mutex, handler, impl_->own_handler_calls());
}

void CachingCore::set_sink(LedgerSink* sink) noexcept { impl_->sink.replace(impl_->mutex, sink); }

int64_t CachingCore::invalid_frees() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->invalid_frees;
}

const char* CachingCore::backend_name() const noexcept { return impl_->pool.backend_name(); }

}  // namespace lowtide::hooks
