#include "hooks/device_ledger.h"

#include <mutex>

#include "hooks/callback_slot.h"
#include "hooks/flat_table.h"
#include "hooks/fork_guard.h"
#include "hooks/held_blocks.h"
#include "hooks/light_lock.h"

namespace lowtide::hooks {
namespace {

uint64_t key_of(const void* address) noexcept { return reinterpret_cast<uint64_t>(address); }

}  // namespace

struct DeviceLedger::Impl final : ForkGuarded {
  Impl() { add_fork_guarded(this); }
  ~Impl() { remove_fork_guarded(this); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void lock_before_fork() noexcept override {
    order.lock();
    mutex.lock();
  }
  void unlock_in_parent() noexcept override {
    mutex.unlock();
    order.unlock();
  }
  void unlock_in_child() noexcept override {
    sink.forget_other_threads(0);
    unlock_in_parent();
  }

  LightLock order;          // of those who report, until their sink has heard; before `mutex`
  mutable LightLock mutex;  // of everything below
  DeviceLedgerStats stats;
  FlatTable<HeldBlock> blocks;
  HeldBlocks held;
  uint64_t sequence = 0;
  bool adopting = false;
  CallbackSlot<LedgerSink> sink;

  HeldBlock* note(void* address, int64_t bytes, BlockState state) noexcept {
    HeldBlock* const block = held.take();
    if (block == nullptr || !blocks.insert(key_of(address), block)) {
      if (block != nullptr) held.put(block);
      ++stats.lost_blocks;
      return nullptr;
    }
    block->bytes = bytes;
    block->state = state;
    block->address = address;
    return block;
  }
  void no_longer_live(HeldBlock* block) noexcept {
    stats.live.add(-block->bytes);
    stats.blocks.add(-1);
  }
  void forget(HeldBlock* block) noexcept {
    if (block->state == BlockState::live) no_longer_live(block);
    if (block->state != BlockState::gone) stats.active.add(-block->bytes);
    blocks.erase(key_of(block->address));
    held.put(block);
  }
  // A block the ledger does not know: one that it was about to adopt, or nobody's.
  void unknown(void* address) noexcept {
    if (!adopting) {
      ++stats.unknown_frees;
    } else {
      (void)note(address, 0, BlockState::gone);
    }
  }
  template <typename Tell>
  void tell(std::unique_lock<LightLock>& lock, const Tell& tell_sink) noexcept {
    LedgerSink* const heard = sink.get();
    if (heard == nullptr) return;
    sink.enter();
    lock.unlock();
    tell_sink(*heard);
    sink.leave_unlocked();
  }
};

DeviceLedger::DeviceLedger() : impl_(std::make_unique<Impl>()) {}
DeviceLedger::~DeviceLedger() = default;

void DeviceLedger::allocated(void* address, int64_t requested_bytes, void* stream) noexcept {
  Impl& ledger = *impl_;
  const int32_t op = current_op();
  const std::lock_guard in_order(ledger.order);
  std::unique_lock lock(ledger.mutex);
  if (HeldBlock* const stale = ledger.blocks.find(key_of(address)); stale != nullptr) [[unlikely]]
    ledger.forget(stale);  // its end was missed, or came before it could be adopted
  HeldBlock* const block = ledger.note(address, requested_bytes, BlockState::live);
  if (block == nullptr) [[unlikely]]
    return;
  block->op = op;
  ledger.stats.live.add(requested_bytes);
  ledger.stats.active.add(requested_bytes);
  ledger.stats.blocks.add(1);
  ++ledger.stats.alloc_calls;
  const MemoryEvent event{++ledger.sequence, address, requested_bytes, requested_bytes, op, stream};
  ledger.tell(lock, [&](LedgerSink& sink) { sink.on_alloc(event); });
}

void DeviceLedger::freed(void* address, void* stream) noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard in_order(ledger.order);
  std::unique_lock lock(ledger.mutex);
  HeldBlock* const block = ledger.blocks.find(key_of(address));
  if (block == nullptr) [[unlikely]] {
    ledger.unknown(address);
    return;
  }
  if (block->state != BlockState::live) [[unlikely]]
    return;
  const int64_t bytes = block->bytes;
  ledger.no_longer_live(block);
  block->state = BlockState::freed;
  ++ledger.stats.free_calls;
  const MemoryEvent event{++ledger.sequence, address, bytes, bytes, current_op(), stream};
  ledger.tell(lock, [&](LedgerSink& sink) { sink.on_free(event); });
}

void DeviceLedger::completed(void* address) noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard lock(ledger.mutex);
  HeldBlock* const block = ledger.blocks.find(key_of(address));
  if (block == nullptr) [[unlikely]] {
    ledger.unknown(address);
    return;
  }
  if (block->state != BlockState::gone) ledger.forget(block);
}

void DeviceLedger::reserved(int64_t bytes) noexcept {
  const std::lock_guard in_order(impl_->order);
  std::unique_lock lock(impl_->mutex);
  impl_->tell(lock, [&](LedgerSink& sink) { sink.on_reserved(bytes); });
}

void DeviceLedger::begin_adoption() noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard lock(ledger.mutex);
  while (ledger.held.used() != nullptr) ledger.forget(ledger.held.used());
  ledger.stats = {};
  ledger.sequence = 0;
  ledger.adopting = true;
}

void DeviceLedger::adopt(void* address, int64_t requested_bytes, bool live) noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard lock(ledger.mutex);
  // Known already: it went, or its place was taken by a later block.
  if (ledger.blocks.find(key_of(address)) != nullptr) return;
  const BlockState state = live ? BlockState::live : BlockState::freed;
  if (ledger.note(address, requested_bytes, state) == nullptr) return;
  ledger.stats.active.add(requested_bytes);
  if (!live) return;
  ledger.stats.live.add(requested_bytes);
  ledger.stats.blocks.add(1);
}

void DeviceLedger::end_adoption() noexcept {
  Impl& ledger = *impl_;
  {
    const std::lock_guard lock(ledger.mutex);
    ledger.adopting = false;
    for (HeldBlock* block = ledger.held.used(); block != nullptr;) {
      HeldBlock* const next = block->next;
      if (block->state == BlockState::gone) ledger.forget(block);
      block = next;
    }
  }
  reset_peaks();
}

DeviceLedgerStats DeviceLedger::stats() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void DeviceLedger::reset_peaks() noexcept {
  const std::lock_guard lock(impl_->mutex);
  for (Counter* counter : {&impl_->stats.live, &impl_->stats.active, &impl_->stats.blocks}) {
    counter->peak = counter->current;
  }
}

void DeviceLedger::reset_calls() noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->stats.alloc_calls = 0;
  impl_->stats.free_calls = 0;
}

std::vector<Holder> DeviceLedger::largest_holders(size_t most) const {
  HolderCount count;
  {
    // Counting allocates under the lock, a copy of all blocks would too: this is the error path.
    const std::lock_guard lock(impl_->mutex);
    for (const HeldBlock* held = impl_->held.used(); held != nullptr; held = held->next) {
      if (held->bytes > 0) count.add(held->op, held->bytes);
    }
  }
  return count.largest(most);
}

void DeviceLedger::set_sink(LedgerSink* sink) noexcept { impl_->sink.replace(impl_->mutex, sink); }

}  // namespace lowtide::hooks
