#include "hooks/arena_figures.h"

#include <algorithm>
#include <mutex>

#include "hooks/device_pool.h"

namespace lowtide::hooks {
namespace {

constexpr size_t kAll = 0, kSmall = 1, kLarge = 2;

size_t pool_of(int64_t requested_bytes) noexcept {
  return static_cast<size_t>(requested_bytes) <= DevicePool::kSmallRequest ? kSmall : kLarge;
}

int64_t rounded(int64_t requested_bytes) noexcept {
  return static_cast<int64_t>(DevicePool::rounded(static_cast<size_t>(requested_bytes)));
}

void add(ArenaFigures::Figure& figure, int64_t amount) noexcept {
  figure.current += amount;
  (amount > 0 ? figure.allocated : figure.freed) += std::abs(amount);
}

// In the order of BlockFigure: torch ends `requested` and `active` when the memory is free again.
constexpr std::array<int64_t, 5> whole_life(int64_t requested, int64_t bytes) noexcept {
  return {1, 1, requested, bytes, bytes};
}
constexpr std::array<int64_t, 5> program_half(int64_t bytes) noexcept {
  return {-1, 0, 0, -bytes, 0};
}
constexpr std::array<int64_t, 5> device_half(int64_t requested, int64_t bytes) noexcept {
  return {0, -1, -requested, 0, -bytes};
}

}  // namespace

void ArenaFigures::begin(const Table& before, int64_t requested_bytes,
                         int64_t block_bytes) noexcept {
  const std::lock_guard lock(lock_);
  if (!counting_) both_ = before;
  counting_ = has_arena_ = true;
  requested_bytes_ = requested_bytes;
  block_bytes_ = block_bytes;
  change_arena_block(1);
}

void ArenaFigures::end() noexcept {
  const std::lock_guard lock(lock_);
  if (!has_arena_) return;
  has_arena_ = false;
  change_arena_block(-1);
}

void ArenaFigures::change_arena_block(int direction) noexcept {
  const Amounts amounts = whole_life(requested_bytes_, block_bytes_);
  for (size_t i = 0; i < kFigures; ++i) {
    add(arena_itself_[i][kAll], direction * amounts[i]);
    add(arena_itself_[i][pool_of(requested_bytes_)], direction * amounts[i]);
  }
}

void ArenaFigures::change(int64_t requested_bytes, const Amounts& amounts, Owner owner) noexcept {
  const size_t pool = pool_of(requested_bytes);
  const std::lock_guard lock(lock_);
  if (!counting_) return;
  for (size_t i = 0; i < kFigures; ++i) {
    if (amounts[i] == 0) continue;
    for (const size_t of : {kAll, pool}) {
      if (owner == Owner::arena) add(own_[i][of], amounts[i]);
      Figure& both = both_[i][of];
      both.current += amounts[i];
      both.peak = std::max(both.peak, both.current);
    }
  }
}

void ArenaFigures::allocated(int64_t bytes) noexcept {
  change(bytes, whole_life(bytes, rounded(bytes)), Owner::arena);
}
void ArenaFigures::freed(int64_t bytes) noexcept {
  change(bytes, program_half(rounded(bytes)), Owner::arena);
}
void ArenaFigures::completed(int64_t bytes) noexcept {
  change(bytes, device_half(bytes, rounded(bytes)), Owner::arena);
}
void ArenaFigures::others_allocated(int64_t bytes) noexcept {
  change(bytes, whole_life(bytes, rounded(bytes)), Owner::others);
}
void ArenaFigures::others_freed(int64_t bytes) noexcept {
  change(bytes, program_half(rounded(bytes)), Owner::others);
}
void ArenaFigures::others_completed(int64_t bytes) noexcept {
  change(bytes, device_half(bytes, rounded(bytes)), Owner::others);
}

void ArenaFigures::correct_current(Table& figures) const noexcept {
  for (size_t i = 0; i < kFigures; ++i) {
    for (size_t pool = 0; pool < kPools; ++pool) {
      Figure& figure = figures[i][pool];
      const Figure& own = own_[i][pool];
      const Figure& arena = arena_itself_[i][pool];
      figure.current += own.current - arena.current;
      figure.allocated += own.allocated - arena.allocated;
      figure.freed += own.freed - arena.freed;
    }
  }
}

void ArenaFigures::correct(Table& figures) noexcept {
  const std::lock_guard lock(lock_);
  correct_current(figures);
  if (!counting_) return;
  for (size_t i = 0; i < kFigures; ++i) {
    for (size_t pool = 0; pool < kPools; ++pool) {
      figures[i][pool].peak = std::max(both_[i][pool].peak, figures[i][pool].current);
    }
  }
}

void ArenaFigures::reset_peaks(const Table& now) noexcept {
  const std::lock_guard lock(lock_);
  both_ = now;
  correct_current(both_);
  for (auto& pools : both_) {
    for (Figure& figure : pools) figure.peak = figure.current;
  }
  counting_ = has_arena_;
}

void ArenaFigures::reset_sums() noexcept {
  const std::lock_guard lock(lock_);
  for (Table* const table : {&own_, &arena_itself_}) {
    for (auto& pools : *table) {
      for (Figure& figure : pools) figure.allocated = figure.freed = 0;
    }
  }
}

}  // namespace lowtide::hooks
