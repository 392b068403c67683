// Moves the pages of segments that are given back into a new one.
//
// A fault on a fresh page costs up to 2 us (a trap, a page from the kernel, 4 KiB of zeroes);
// moving a page that the process has costs 10 ns. Under a budget segments come and go all the time,
// so this is most of what a caching core on anonymous memory costs.
//
// No thread safety (the core's lock guards it). Nothing is thrown. Linux only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hooks/backend.h"
#include "hooks/mapping_pieces.h"

namespace lowtide::hooks {

inline constexpr size_t kPageBytes = 4096;
// Below, the system call costs more than the faults.
inline constexpr size_t kWorthMoving = 32 * 1024;
inline constexpr uintptr_t kSegmentAlignment = 64 * 1024;

// mmap of anonymous private memory; null where it fails.
[[nodiscard]] void* map_pages(void* where, size_t bytes, int protection, int extra_flags) noexcept;
// An aligned place of the address space without access, which costs no memory; null = none left.
[[nodiscard]] void* reserve_address_space(size_t bytes) noexcept;

class PageMover {
 public:
  // As Backend::exchange. Null: the old segments are gone and there is no new one yet.
  [[nodiscard]] void* exchange(std::span<const Extent> old, size_t bytes, size_t most_rest,
                               Extent& rest) noexcept;
  // The segment is about to be unmapped.
  void forget(const void* base) noexcept { pieces_.forget(base); }

 private:
  // A segment in the making: reserved address space that pages are moved to.
  struct Place {
    std::byte* begin = nullptr;
    size_t bytes = 0;
    size_t filled = 0;
    Pieces made;

    explicit Place(size_t wanted) noexcept;
    // Returns how many of the `bytes` at `from` have been moved here.
    size_t take(std::byte* from, size_t bytes) noexcept;
    void abandon(size_t hole_bytes) noexcept;
  };

  MappingPieces pieces_;
};

}  // namespace lowtide::hooks
