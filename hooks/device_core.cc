#include "hooks/device_core.h"

#include <mutex>
#include <utility>

#include "hooks/callback_slot.h"
#include "hooks/fork_guard.h"
#include "hooks/pending_frees.h"

namespace lowtide::hooks {
namespace {

// More than any device has; far enough from overflow to add such sizes.
constexpr size_t kMostDeviceRequest = size_t{1} << 48;

// The core whose pressure handler this thread is inside of; null = none.
thread_local const void* handled_device_core = nullptr;

}  // namespace

struct DeviceCore::Impl final : ForkGuarded {
  explicit Impl(std::unique_ptr<DeviceBackend> given) : backend(std::move(given)) {}

  void lock_before_fork() noexcept override { mutex.lock(); }
  void unlock_in_parent() noexcept override { mutex.unlock(); }
  void unlock_in_child() noexcept override {
    forked = true;
    pending.abandon();
    pool.abandon();
    sink.forget_other_threads(0);
    handler.forget_other_threads(own_handler_calls());
    mutex.unlock();
  }

  [[nodiscard]] int64_t own_handler_calls() const noexcept {
    return handled_device_core == this ? 1 : 0;
  }

  // All with the lock held.
  void put(DeviceBlock* block) noexcept {
    stats.waiting -= static_cast<int64_t>(block->bytes);
    pool.put(block);
  }
  void collect() noexcept {
    if (pending.empty()) return;
    pending.collect([this](DeviceBlock* block) { put(block); });
  }
  void wait_for_pending() noexcept {
    if (pending.empty()) return;
    ++stats.stream_waits;
    pending.wait([this](DeviceBlock* block) { put(block); });
  }
  [[nodiscard]] DeviceBlock* obtain(std::unique_lock<std::mutex>& lock, size_t bytes,
                                    DeviceStream stream) noexcept;
  // The rungs of the ladder: null when the last one did not help. The lock is released while the
  // handler runs.
  [[nodiscard]] DeviceBlock* make_room(const DeviceRequest& request, DeviceMiss& miss) noexcept;
  [[nodiscard]] DeviceBlock* ask_for_room(std::unique_lock<std::mutex>& lock, size_t bytes,
                                          DeviceStream stream, DeviceMiss miss) noexcept;
  [[nodiscard]] DeviceBlock* live(const void* block) const noexcept {
    DeviceBlock* const found = pool.find(block);
    return found != nullptr && found->state == DeviceBlock::State::live ? found : nullptr;
  }

  mutable std::mutex mutex;  // of everything below; held during cudaMalloc, hence no LightLock
  const std::unique_ptr<DeviceBackend> backend;
  DeviceStats stats;
  DevicePool pool{*backend, stats};
  PendingFrees pending{*backend};
  uint64_t sequence = 0;
  int64_t invalid_frees = 0;
  bool forked = false;
  CallbackSlot<LedgerSink> sink;
  CallbackSlot<PressureHandler> handler;
};

DeviceBlock* DeviceCore::Impl::obtain(std::unique_lock<std::mutex>& lock, size_t bytes,
                                      DeviceStream stream) noexcept {
  collect();
  const DeviceRequest request = pool.request(bytes, stream);
  if (DeviceBlock* const block = pool.take(request)) return block;
  DeviceMiss miss = DeviceMiss::none;
  if (DeviceBlock* const block = pool.grow(request, miss)) return block;
  if (!backend->capturing(stream)) {
    if (DeviceBlock* const block = make_room(request, miss)) return block;
    if (miss == DeviceMiss::limit) ++stats.limit_hits;
    return ask_for_room(lock, bytes, stream, miss);
  }
  if (miss == DeviceMiss::limit) ++stats.limit_hits;
  return nullptr;
}

DeviceBlock* DeviceCore::Impl::make_room(const DeviceRequest& request, DeviceMiss& miss) noexcept {
  if (stats.cached > 0) {
    ++stats.alloc_retries;
    if (DeviceBlock* const block = pool.grow_in_exchange(request, miss)) return block;
  }
  if (pending.empty()) return nullptr;
  wait_for_pending();
  if (DeviceBlock* const block = pool.take(request)) return block;
  return pool.grow_in_exchange(request, miss);
}

DeviceBlock* DeviceCore::Impl::ask_for_room(std::unique_lock<std::mutex>& lock, size_t bytes,
                                            DeviceStream stream, DeviceMiss miss) noexcept {
  if (handled_device_core != nullptr) return nullptr;
  const int64_t growth = DevicePool::least_growth(pool.request(bytes, stream));
  while (handler.get() != nullptr && growth <= pool.limit()) {
    const int64_t need =
        miss == DeviceMiss::limit ? stats.reserved.current + growth - pool.limit() : growth;
    PressureHandler* const asked = handler.get();
    handler.enter();
    lock.unlock();
    handled_device_core = this;
    const int64_t freed = asked->free_memory(need, static_cast<int64_t>(bytes));
    handled_device_core = nullptr;
    lock.lock();
    handler.leave();
    if (freed > 0) stats.pressure_bytes += freed;
    // Also after a "nothing left": another thread may have freed in the meantime.
    collect();
    const DeviceRequest request = pool.request(bytes, stream);  // pools may have come and gone
    if (DeviceBlock* const block = pool.take(request)) return block;
    if (DeviceBlock* const block = pool.grow(request, miss)) return block;
    if (DeviceBlock* const block = make_room(request, miss)) return block;
    if (freed <= 0) break;
  }
  return nullptr;
}

DeviceCore::DeviceCore(std::unique_ptr<DeviceBackend> backend)
    : impl_(std::make_unique<Impl>(std::move(backend))) {
  add_fork_guarded(impl_.get());
}

DeviceCore::~DeviceCore() { remove_fork_guarded(impl_.get()); }

void* DeviceCore::allocate(size_t bytes, DeviceStream stream) noexcept {
  if (bytes == 0) return nullptr;
  Impl& core = *impl_;
  std::unique_lock lock(core.mutex);
  DeviceBlock* block = nullptr;
  if (bytes <= kMostDeviceRequest && !core.forked) [[likely]] {
    block = core.obtain(lock, bytes, stream);
  }
  if (block == nullptr) [[unlikely]] {
    ++core.stats.failures;
    return nullptr;
  }
  void* const address = block->base;
  const auto requested = static_cast<int64_t>(bytes);
  const auto rounded = static_cast<int64_t>(block->bytes);
  block->state = DeviceBlock::State::live;
  block->requested = bytes;
  block->op = current_op();
  core.pool.account(block->segment->list->small, [&](PoolStats& stats) {
    stats.blocks.add(1);
    stats.requested.add(requested);
    stats.rounded.add(rounded);
  });
  const uint64_t sequence = ++core.sequence;
  if (LedgerSink* const sink = core.sink.get(); sink != nullptr) {
    core.sink.enter();
    const int32_t op = block->op;
    lock.unlock();
    sink->on_alloc({sequence, address, requested, rounded, op});
    core.sink.leave_unlocked();
  }
  return address;
}

bool DeviceCore::free(void* address) noexcept {
  if (address == nullptr) return true;
  Impl& core = *impl_;
  std::unique_lock lock(core.mutex);
  DeviceBlock* const block = core.live(address);
  if (block == nullptr) [[unlikely]] {
    ++core.invalid_frees;
    return false;
  }
  const auto requested = static_cast<int64_t>(block->requested);
  const auto rounded = static_cast<int64_t>(block->bytes);
  block->state = DeviceBlock::State::disowned;
  block->requested = 0;
  core.pool.account(block->segment->list->small, [&](PoolStats& stats) {
    stats.blocks.take(1);
    stats.requested.take(requested);
    stats.rounded.take(rounded);
  });
  const uint64_t sequence = ++core.sequence;
  if (LedgerSink* const sink = core.sink.get(); sink != nullptr) {
    // The block is nobody's now but not available either: the sink hears of the free first.
    core.sink.enter();
    lock.unlock();
    sink->on_free({sequence, address, requested, rounded, current_op()});
    lock.lock();
    core.sink.leave();
  }
  core.stats.waiting += rounded;
  if (block->used_elsewhere() && !core.forked && core.pending.add(block)) {
    block->state = DeviceBlock::State::waiting;
  } else {
    core.put(block);
  }
  return true;
}

bool DeviceCore::use_on(void* address, DeviceStream stream) noexcept {
  const std::lock_guard lock(impl_->mutex);
  DeviceBlock* const block = impl_->live(address);
  if (block == nullptr) {
    ++impl_->invalid_frees;
    return false;
  }
  if (stream == block->segment->stream) return true;
  for (DeviceStream known : block->users) {
    if (known == stream) return true;
  }
  try {
    block->users.push_back(stream);
  } catch (...) {
    block->used_on_unknown = true;
  }
  return true;
}

size_t DeviceCore::requested_size(const void* block) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  const DeviceBlock* const found = impl_->live(block);
  return found != nullptr ? found->requested : 0;
}

size_t DeviceCore::rounded_size(size_t bytes) const noexcept {
  return bytes > kMostDeviceRequest ? bytes : DevicePool::rounded(bytes);
}

Extent DeviceCore::segment_of(const void* block) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  const DeviceBlock* const found = impl_->live(block);
  if (found == nullptr) return {};
  return {found->segment->base, found->segment->bytes};
}

DeviceStats DeviceCore::stats() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void DeviceCore::reset_peaks() noexcept {
  const std::lock_guard lock(impl_->mutex);
  DeviceStats& stats = impl_->stats;
  for (PoolStats* const pool :
       {static_cast<PoolStats*>(&stats), &stats.small_pool, &stats.large_pool}) {
    for (Flow* const flow : pool->flows()) flow->peak = flow->current;
  }
}

void DeviceCore::reset_sums() noexcept {
  const std::lock_guard lock(impl_->mutex);
  DeviceStats& stats = impl_->stats;
  for (PoolStats* const pool :
       {static_cast<PoolStats*>(&stats), &stats.small_pool, &stats.large_pool}) {
    for (Flow* const flow : pool->flows()) flow->allocated = flow->freed = 0;
  }
  stats.alloc_retries = stats.failures = stats.stream_waits = 0;
  stats.segment_acquires = stats.segment_returns = 0;
}

int64_t DeviceCore::trim() noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->forked) return 0;
  impl_->wait_for_pending();
  const int64_t before = impl_->stats.reserved.current;
  impl_->pool.give_back_cached(before);
  return before - impl_->stats.reserved.current;
}

void DeviceCore::set_limit(int64_t reserved_bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.set_limit(reserved_bytes);
}

int64_t DeviceCore::limit() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.limit();
}

void DeviceCore::set_pressure_handler(PressureHandler* handler) noexcept {
  impl_->handler.replace(impl_->mutex, handler, impl_->own_handler_calls());
}

void DeviceCore::set_sink(LedgerSink* sink) noexcept { impl_->sink.replace(impl_->mutex, sink); }

int64_t DeviceCore::invalid_frees() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->invalid_frees;
}

const char* DeviceCore::backend_name() const noexcept { return impl_->backend->name(); }

DeviceMemory DeviceCore::device_memory() noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->forked ? DeviceMemory{} : impl_->backend->memory();
}

bool DeviceCore::begin_pool(PoolId id, StreamFilter filter) noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.begin_route(id, std::move(filter));
}

void DeviceCore::end_pool(PoolId id) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.end_route(id);
}

bool DeviceCore::release_pool(PoolId id) noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.release_pool(id);
}

std::vector<Holder> DeviceCore::largest_holders(size_t most) const {
  const std::lock_guard lock(impl_->mutex);
  return holders_of(impl_->pool, most);
}

std::string DeviceCore::shortage(size_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  return describe({.bytes = bytes,
                   .limit = impl_->pool.limit(),
                   .forked = impl_->forked,
                   .trouble = impl_->backend->trouble(),
                   .device = impl_->forked ? DeviceMemory{} : impl_->backend->memory(),
                   .stats = impl_->stats,
                   .holders = holders_of(impl_->pool, Shortage::kHoldersShown)});
}

}  // namespace lowtide::hooks
