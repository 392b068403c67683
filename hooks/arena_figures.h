// Statistics of an allocator whose program has blocks in an arena, which that allocator takes for
// one block of its own: figures of blocks, as if the arena's were the allocator's.
//
// Current figures and sums are exact. Peaks are of both together, counted at every event from the
// arena's beginning on; for that a block of the allocator counts as its request in whole 512 B,
// which may be up to 1 MiB less than the block it really gives.
//
// Figures come in torch's three pools: all, small (requests up to 1 MiB), large. Thread safety: all
// calls; the lock is a leaf. Nothing is thrown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hooks/light_lock.h"

namespace lowtide::hooks {

enum class BlockFigure : uint8_t { blocks, active_blocks, requested, allocated, active };

class ArenaFigures {
 public:
  static constexpr size_t kFigures = 5;  // of BlockFigure
  static constexpr size_t kPools = 3;
  struct Figure {
    int64_t current = 0;
    int64_t peak = 0;
    int64_t allocated = 0;  // sums of what came and went
    int64_t freed = 0;
  };
  using Table = std::array<std::array<Figure, kPools>, kFigures>;

  // `before`: the allocator's figures before it gave the arena away, as a block of these sizes.
  void begin(const Table& before, int64_t requested_bytes, int64_t block_bytes) noexcept;
  void end() noexcept;  // the arena went back; peaks go on until they are reset

  // A block of the arena.
  void allocated(int64_t requested_bytes) noexcept;
  void freed(int64_t requested_bytes) noexcept;      // by the program
  void completed(int64_t requested_bytes) noexcept;  // may be handed out again
  // A block of the allocator itself, other than the arena.
  void others_allocated(int64_t requested_bytes) noexcept;
  void others_freed(int64_t requested_bytes) noexcept;
  void others_completed(int64_t requested_bytes) noexcept;

  // From the allocator's own figures to those of blocks.
  void correct(Table& figures) noexcept;
  // With the allocator's own, after it has reset its.
  void reset_peaks(const Table& now) noexcept;
  void reset_sums() noexcept;

 private:
  using Amounts = std::array<int64_t, kFigures>;
  enum class Owner : uint8_t { arena, others };

  void change(int64_t requested_bytes, const Amounts& amounts, Owner owner) noexcept;
  void change_arena_block(int direction) noexcept;
  void correct_current(Table& figures) const noexcept;

  mutable LightLock lock_;
  bool counting_ = false;  // there is an arena, or was one since the peaks were reset
  bool has_arena_ = false;
  Table own_{};           // blocks of the arena; peaks unused
  Table arena_itself_{};  // as the allocator's block; peaks unused
  Table both_{};          // current figures and peaks of all blocks; sums unused
  int64_t requested_bytes_ = 0, block_bytes_ = 0;
};

}  // namespace lowtide::hooks
