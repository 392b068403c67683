#include "hooks/placement_arena.h"

#include <algorithm>
#include <utility>

namespace lowtide::hooks {
namespace {

uint64_t arena_key(const void* address) noexcept { return reinterpret_cast<uint64_t>(address); }

}  // namespace

PlacementArena::PlacementArena(const PlacementPlan& plan, void* base, DeviceBackend& backend,
                               ArenaObserver& observer)
    : base_(static_cast<std::byte*>(base)),
      bytes_(plan.bytes),
      observer_(observer),
      pending_(backend) {
  bands_.reserve(plan.bands.size());
  for (const PlannedBand& band : plan.bands) bands_.emplace_back(band.offset, band.bytes);
}

PlacementArena::~PlacementArena() { wait(); }

void* PlacementArena::take(const ArenaRequest& request, int64_t offset) noexcept {
  if (!band(request.band).take(offset, request.rounded_bytes)) return nullptr;
  return hand_out(request, offset);
}

void* PlacementArena::take_gap(const ArenaRequest& request) noexcept {
  const int64_t offset = band(request.band).take_best(request.rounded_bytes);
  return offset < 0 ? nullptr : hand_out(request, offset);
}

void* PlacementArena::take_gap(const ArenaRequest& request,
                               std::span<const PlannedSlot> needed) noexcept {
  const int64_t offset = band(request.band).take_quiet(request.rounded_bytes, needed);
  return offset < 0 ? nullptr : hand_out(request, offset);
}

void* PlacementArena::hand_out(const ArenaRequest& request, int64_t offset) noexcept {
  std::byte* const address = base_ + offset;
  ArenaBlock* const block = make_block();
  if (block == nullptr || !blocks_.insert(arena_key(address), block)) {
    if (block != nullptr) block->next = std::exchange(unused_, block);
    band(request.band).put(offset, request.rounded_bytes);
    return nullptr;
  }
  block->base = address;
  block->bytes = static_cast<size_t>(request.rounded_bytes);
  block->requested = request.bytes;
  block->state = DeviceBlock::State::live;
  block->op = request.op;
  block->band = request.band;
  block->stream = request.stream;
  observer_.on_allocated(*block);
  return address;
}

ArenaBlock* PlacementArena::make_block() noexcept {
  if (unused_ != nullptr) {
    DeviceBlock* const block = unused_;
    unused_ = std::exchange(block->next, nullptr);
    return static_cast<ArenaBlock*>(block);
  }
  try {
    return &storage_.emplace_back();
  } catch (...) {
    return nullptr;
  }
}

const ArenaBlock* PlacementArena::find(const void* address) const noexcept {
  return blocks_.find(arena_key(address));
}

bool PlacementArena::free(void* address) noexcept {
  ArenaBlock* const block = blocks_.find(arena_key(address));
  if (block == nullptr || block->state != DeviceBlock::State::live) return false;
  observer_.on_freed(*block);
  block->state = DeviceBlock::State::waiting;
  if (block->used_elsewhere() && pending_.add(block)) return true;
  complete(block);
  return true;
}

bool PlacementArena::use_on(void* address, DeviceStream stream) noexcept {
  ArenaBlock* const block = blocks_.find(arena_key(address));
  if (block == nullptr || block->state != DeviceBlock::State::live) return false;
  auto& users = block->users;
  if (stream == block->stream || std::find(users.begin(), users.end(), stream) != users.end()) {
    return true;
  }
  try {
    users.push_back(stream);
  } catch (...) {
    block->used_on_unknown = true;
  }
  return true;
}

void PlacementArena::complete(ArenaBlock* block) noexcept {
  observer_.on_completed(*block);
  blocks_.erase(arena_key(block->base));
  band(block->band).put(block->base - base_, static_cast<int64_t>(block->bytes));
  block->state = DeviceBlock::State::free;
  block->next = std::exchange(unused_, block);
}

void PlacementArena::collect_pending() noexcept {
  pending_.collect([this](DeviceBlock* block) { complete(static_cast<ArenaBlock*>(block)); });
}

void PlacementArena::wait() noexcept {
  pending_.wait([this](DeviceBlock* block) { complete(static_cast<ArenaBlock*>(block)); });
}

int64_t PlacementArena::free_bytes() const noexcept {
  int64_t bytes = 0;
  for (const FreeRanges& of : bands_) bytes += of.free_bytes();
  return bytes;
}

}  // namespace lowtide::hooks
