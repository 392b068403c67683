#include "hooks/torch_cuda_watch.h"

#include <cstdint>

namespace lowtide::hooks {
namespace {

// While this thread takes the snapshot that begin() asks for: the device that comes next.
thread_local int snapshot_device = -1;

// Ends with the snapshot, however that ends.
struct OwnSnapshot {
  OwnSnapshot() { snapshot_device = 0; }
  ~OwnSnapshot() { snapshot_device = -1; }
  OwnSnapshot(const OwnSnapshot&) = delete;
  OwnSnapshot& operator=(const OwnSnapshot&) = delete;
};

}  // namespace

thread_local bool CudaLedgerWatch::HiddenBlock::hiding = false;

void CudaLedgerWatch::begin(c10::cuda::CUDACachingAllocator::CUDAAllocator& native) {
  if (devices_ > 0 || !native.initialized()) return;
  if (!has_tracker_) {
    // For good: from here on torch describes each event, heard or not, which is a fifth of what a
    // malloc and free of a cached block cost (about 900 instructions in its record_trace()).
    native.attachAllocatorTraceTracker([this](const Entry& entry) { on_trace(entry); });
    has_tracker_ = true;
  }
  const OwnSnapshot scope;
  const auto found = native.snapshot({0, 0}, /*include_traces=*/false);
  for (const auto& segment : found.segments) {
    if (!known(segment.device)) continue;
    auto* address = reinterpret_cast<char*>(segment.address);
    for (const auto& block : segment.blocks) {
      if (block.active) {
        ledger(segment.device)
            .adopt(address, static_cast<int64_t>(block.requested_size), block.allocated);
      }
      address += block.size;
    }
  }
  for (int device = 0; device < snapshot_device; ++device) ledger(device).end_adoption();
  devices_ = snapshot_device;
}

void CudaLedgerWatch::end() noexcept {
  for (int device = 0; device < devices_; ++device) {
    slot(device).listening = false;
    ledger(device).set_sink(nullptr);
  }
  devices_ = 0;
}

// The native allocator goes through its devices in order.
void CudaLedgerWatch::on_own_snapshot() noexcept {
  if (!known(snapshot_device)) return;
  Slot& next = slot(snapshot_device++);
  next.ledger.begin_adoption();
  next.listening = true;
}

void CudaLedgerWatch::on_trace(const Entry& entry) noexcept {
  if (entry.action_ == Entry::SNAPSHOT && snapshot_device >= 0) return on_own_snapshot();
  if (!known(entry.device_)) return;
  Slot& of = slot(entry.device_);
  if (!of.listening.load(std::memory_order_relaxed)) return;
  auto* const address = reinterpret_cast<void*>(entry.addr_);
  const auto bytes = static_cast<int64_t>(entry.size_);
  if (is_hidden(of, entry.action_, address)) return;
  CudaBlockListener* const listener = of.listener.load(std::memory_order_acquire);
  switch (entry.action_) {
    case Entry::ALLOC:
      of.ledger.allocated(address, bytes, entry.stream_);
      if (listener != nullptr) listener->native_allocated(address, bytes);
      break;
    case Entry::FREE_REQUESTED:
      of.ledger.freed(address, entry.stream_);
      if (listener != nullptr) listener->native_freed(address, bytes);
      break;
    case Entry::FREE_COMPLETED:
      of.ledger.completed(address);
      if (listener != nullptr) listener->native_completed(address, bytes);
      break;
    case Entry::SEGMENT_ALLOC:
    case Entry::SEGMENT_MAP:
      of.ledger.reserved(static_cast<int64_t>(entry.size_));
      break;
    case Entry::SEGMENT_FREE:
    case Entry::SEGMENT_UNMAP:
      of.ledger.reserved(-static_cast<int64_t>(entry.size_));
      break;
    default:
      break;
  }
}

bool CudaLedgerWatch::is_hidden(Slot& of, Entry::Action action, void* address) noexcept {
  if (action == Entry::ALLOC && HiddenBlock::hiding) [[unlikely]] {
    of.hidden = address;
    return true;
  }
  if (of.hidden.load(std::memory_order_relaxed) != address) [[likely]]
    return false;
  if (action == Entry::FREE_COMPLETED) of.hidden = nullptr;
  return action == Entry::FREE_COMPLETED || action == Entry::FREE_REQUESTED;
}

}  // namespace lowtide::hooks
