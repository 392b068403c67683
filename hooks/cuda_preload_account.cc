#include "hooks/cuda_preload_account.h"

#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace lowtide::hooks {
namespace {

constexpr size_t kPiecesAtOnce = 256;
constexpr int64_t kLeastGrowth = int64_t{1} << 20;

bool is_place(int place) noexcept { return place >= 0 && place < kPreloadPlaces; }

bool lock_within_a_second(LightLock& lock) noexcept {
  constexpr timespec kNap{0, 1'000'000};
  for (int nap = 0; nap < 1000; ++nap) {
    if (lock.try_lock()) return true;
    nanosleep(&kNap, nullptr);
  }
  return false;
}

}  // namespace

PreloadAccount::Piece* PreloadAccount::note(Table& table, uint64_t key) noexcept {
  if (unused_ == nullptr) {
    Piece* const pieces = KernelMemory::make<Piece>(kPiecesAtOnce);
    if (pieces == nullptr) return nullptr;
    for (size_t i = 0; i < kPiecesAtOnce; ++i) pieces[i].next = std::exchange(unused_, &pieces[i]);
  }
  Piece* const piece = std::exchange(unused_, unused_->next);
  *piece = Piece{};
  piece->key = key;
  if (table.insert(key, piece)) return piece;
  piece->next = std::exchange(unused_, piece);
  return nullptr;
}

void PreloadAccount::forget(Table& table, Piece* piece) noexcept {
  if (table.find(piece->key) == piece) table.erase(piece->key);
  piece->next = std::exchange(unused_, piece);
}

bool PreloadAccount::begin_life(Table& table, int place, uint64_t key, int64_t bytes) noexcept {
  if (!is_place(place)) {
    ++figures_.lost;
    return false;
  }
  if (Piece* const old = table.find(key); old != nullptr) {
    // Its end was made where nobody told of it; what is still mapped lives until it no longer is.
    old->handles = 0;
    table.erase(key);
    if (old->mappings == 0) {
      end_life(*old);
      forget(table, old);
    }
  }
  PlaceFigures& of = figures_.places[place];
  ++of.allocations;
  Piece* const piece = note(table, key);
  if (piece == nullptr) {
    ++figures_.lost;
    return false;
  }
  piece->bytes = bytes;
  piece->place = place;
  piece->life = lives_[place];
  piece->handles = 1;
  of.live_bytes += bytes;
  of.peak_segments = std::max(of.peak_segments, ++of.segments);
  of.peak_bytes = std::max(of.peak_bytes, of.live_bytes);
  if (of.peak_bytes - of.noted_bytes < std::max(of.noted_bytes / 16, kLeastGrowth)) return false;
  note_largest(place);
  return true;
}

void PreloadAccount::end_life(const Piece& piece) noexcept {
  PlaceFigures& of = figures_.places[piece.place];
  if (piece.life != lives_[piece.place]) return;
  of.live_bytes -= piece.bytes;
  --of.segments;
}

void PreloadAccount::note_largest(int place) noexcept {
  PlaceFigures& of = figures_.places[place];
  of.noted_bytes = of.live_bytes;
  std::fill_n(of.largest, PlaceFigures::kLargest, 0);
  const auto enter = [&](const Piece* piece) {
    if (piece->place != place || piece->life != lives_[place]) return;
    int64_t bytes = piece->bytes;
    for (int64_t& larger : of.largest) {
      if (bytes > larger) std::swap(bytes, larger);
    }
  };
  blocks_.for_each(enter);
  physical_.for_each(enter);
}

bool PreloadAccount::allocated(int place, uint64_t address, int64_t bytes) noexcept {
  if (address == 0) return false;  // 0 bytes
  const std::lock_guard held(lock_);
  return begin_life(blocks_, place, address, bytes);
}

void PreloadAccount::allocation_failed(int place, int64_t bytes) noexcept {
  if (!is_place(place)) return;
  const std::lock_guard held(lock_);
  PlaceFigures& of = figures_.places[place];
  ++of.failures;
  of.largest_failure_bytes = std::max(of.largest_failure_bytes, bytes);
}

bool PreloadAccount::freed(uint64_t address) noexcept {
  if (address == 0) return false;
  const std::lock_guard held(lock_);
  Piece* const block = blocks_.find(address);
  if (block == nullptr) {
    ++figures_.unknown_frees;
    return false;
  }
  ++figures_.places[block->place].frees;
  end_life(*block);
  forget(blocks_, block);
  return true;
}

void PreloadAccount::free_failed() noexcept {
  const std::lock_guard held(lock_);
  ++figures_.failed_frees;
}

bool PreloadAccount::created(int place, uint64_t handle, int64_t bytes) noexcept {
  const std::lock_guard held(lock_);
  return begin_life(physical_, place, handle, bytes);
}

void PreloadAccount::imported(uint64_t handle) noexcept {
  const std::lock_guard held(lock_);
  if (Piece* const known = physical_.find(handle); known != nullptr) {
    ++known->handles;
  } else if (Piece* const piece = note(physical_, handle); piece != nullptr) {
    piece->handles = 1;
    piece->life = -1;  // of no place
  }
}

void PreloadAccount::retained(uint64_t handle) noexcept {
  const std::lock_guard held(lock_);
  if (Piece* const physical = physical_.find(handle); physical != nullptr) ++physical->handles;
}

void PreloadAccount::end_if_unused(Piece* physical) noexcept {
  if (physical->handles > 0 || physical->mappings > 0) return;
  end_life(*physical);
  forget(physical_, physical);
}

void PreloadAccount::end_mapping(Piece* mapping) noexcept {
  Piece* const physical = mapping->physical;
  forget(mappings_, mapping);
  --physical->mappings;
  end_if_unused(physical);
}

bool PreloadAccount::released(uint64_t handle) noexcept {
  const std::lock_guard held(lock_);
  Piece* const physical = physical_.find(handle);
  if (physical == nullptr || physical->handles == 0) {
    ++figures_.unknown_frees;
    return false;
  }
  if (--physical->handles == 0 && physical->life >= 0) ++figures_.places[physical->place].frees;
  end_if_unused(physical);
  return true;
}

void PreloadAccount::mapped(uint64_t address, uint64_t bytes, uint64_t handle) noexcept {
  const std::lock_guard held(lock_);
  Piece* const physical = physical_.find(handle);
  if (physical == nullptr) return;
  if (Piece* const old = mappings_.find(address); old != nullptr) end_mapping(old);
  Piece* const mapping = note(mappings_, address);
  if (mapping == nullptr) {
    ++figures_.lost;
    return;
  }
  mapping->bytes = static_cast<int64_t>(bytes);
  mapping->physical = physical;
  ++physical->mappings;
}

void PreloadAccount::unmapped(uint64_t address, uint64_t bytes) noexcept {
  const std::lock_guard held(lock_);
  for (const uint64_t end = address + bytes; address < end;) {
    Piece* const mapping = mappings_.find(address);
    if (mapping == nullptr || mapping->bytes <= 0) return;
    address += static_cast<uint64_t>(mapping->bytes);
    end_mapping(mapping);
  }
}

void PreloadAccount::reset(int device) noexcept {
  if (device < 0 || device >= kPreloadDevices) return;
  const std::lock_guard held(lock_);
  ++lives_[device];
  figures_.places[device].live_bytes = 0;
  figures_.places[device].segments = 0;
}

void PreloadAccount::forget_all() noexcept {
  const std::lock_guard held(lock_);
  for (int32_t& life : lives_) ++life;
  figures_ = PreloadFigures{};
}

bool PreloadAccount::read(PreloadFigures& out) noexcept {
  const bool locked = lock_within_a_second(lock_);
  for (int place = 0; place < kPreloadPlaces && locked; ++place) {
    const PlaceFigures& of = figures_.places[place];
    if (of.live_bytes > of.noted_bytes) note_largest(place);
  }
  out = figures_;
  if (locked) lock_.unlock();
  return locked;
}

}  // namespace lowtide::hooks
