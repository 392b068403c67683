#include "hooks/device_ledger.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "hooks/callback_slot.h"
#include "hooks/flat_table.h"
#include "hooks/holder_pool.h"
#include "hooks/light_lock.h"

namespace lowtide::hooks {
namespace {

uint64_t key_of(const void* address) noexcept { return reinterpret_cast<uint64_t>(address); }

}  // namespace

struct DeviceLedger::Impl {
  mutable LightLock mutex;  // of everything below
  DeviceLedgerStats stats;
  FlatTable<Holder> blocks;
  HolderPool holders;
  uint64_t sequence = 0;
  bool adopting = false;
  CallbackSlot<LedgerSink> sink;

  Holder* note(void* address, int64_t bytes, BlockState state) noexcept {
    Holder* const holder = holders.take();
    if (holder == nullptr || !blocks.insert(key_of(address), holder)) {
      if (holder != nullptr) holders.put(holder);
      ++stats.lost_blocks;
      return nullptr;
    }
    holder->bytes = bytes;
    holder->state = state;
    holder->address = address;
    return holder;
  }
  void no_longer_live(Holder* holder) noexcept {
    stats.live.add(-holder->bytes);
    stats.blocks.add(-1);
  }
  void forget(Holder* holder) noexcept {
    if (holder->state == BlockState::live) no_longer_live(holder);
    if (holder->state != BlockState::gone) stats.active.add(-holder->bytes);
    blocks.erase(key_of(holder->address));
    holders.put(holder);
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
  std::unique_lock lock(ledger.mutex);
  if (Holder* const stale = ledger.blocks.find(key_of(address)); stale != nullptr) [[unlikely]]
    ledger.forget(stale);  // its end was missed, or came before it could be adopted
  Holder* const holder = ledger.note(address, requested_bytes, BlockState::live);
  if (holder == nullptr) [[unlikely]]
    return;
  holder->op = op;
  ledger.stats.live.add(requested_bytes);
  ledger.stats.active.add(requested_bytes);
  ledger.stats.blocks.add(1);
  ++ledger.stats.alloc_calls;
  const MemoryEvent event{++ledger.sequence, address, requested_bytes, requested_bytes, op, stream};
  ledger.tell(lock, [&](LedgerSink& sink) { sink.on_alloc(event); });
}

void DeviceLedger::freed(void* address, void* stream) noexcept {
  Impl& ledger = *impl_;
  std::unique_lock lock(ledger.mutex);
  Holder* const holder = ledger.blocks.find(key_of(address));
  if (holder == nullptr) [[unlikely]] {
    ledger.unknown(address);
    return;
  }
  if (holder->state != BlockState::live) [[unlikely]]
    return;
  const int64_t bytes = holder->bytes;
  ledger.no_longer_live(holder);
  holder->state = BlockState::freed;
  ++ledger.stats.free_calls;
  const MemoryEvent event{++ledger.sequence, address, bytes, bytes, current_op(), stream};
  ledger.tell(lock, [&](LedgerSink& sink) { sink.on_free(event); });
}

void DeviceLedger::completed(void* address) noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard lock(ledger.mutex);
  Holder* const holder = ledger.blocks.find(key_of(address));
  if (holder == nullptr) [[unlikely]] {
    ledger.unknown(address);
    return;
  }
  if (holder->state != BlockState::gone) ledger.forget(holder);
}

void DeviceLedger::begin_adoption() noexcept {
  Impl& ledger = *impl_;
  const std::lock_guard lock(ledger.mutex);
  while (ledger.holders.used() != nullptr) ledger.forget(ledger.holders.used());
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
    for (Holder* holder = ledger.holders.used(); holder != nullptr;) {
      Holder* const next = holder->next;
      if (holder->state == BlockState::gone) ledger.forget(holder);
      holder = next;
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

std::string DeviceLedger::largest_holders(size_t count) const {
  using Group = std::pair<int32_t, int64_t>;  // op, bytes of each block
  std::map<Group, int64_t> groups;            // how many blocks
  {
    // Grouping allocates under the lock, a copy of all blocks would too: this is the error path.
    const std::lock_guard lock(impl_->mutex);
    for (const Holder* holder = impl_->holders.used(); holder != nullptr; holder = holder->next) {
      if (holder->bytes > 0) ++groups[{holder->op, holder->bytes}];
    }
  }
  std::vector<std::pair<Group, int64_t>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.first.second * a.second > b.first.second * b.second;
  });
  std::string text;
  for (const auto& [group, blocks] : sorted) {
    if (count-- == 0) break;
    const auto& [op, bytes] = group;
    if (!text.empty()) text += ", ";
    text += std::to_string(blocks) + " x " + format_bytes(bytes);
    if (op >= 0) text += " (op " + std::to_string(op) + ")";
  }
  return text;
}

void DeviceLedger::set_sink(LedgerSink* sink) noexcept { impl_->sink.replace(impl_->mutex, sink); }

}  // namespace lowtide::hooks
