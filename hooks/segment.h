// One piece of memory held from the backend, and what the core knows about it. Kept outside the
// memory itself, so that a core never touches what it hands out (a counting backend has no memory).
//
// A segment is cached (nobody's), one large block, or a slab of equal small blocks. The core owns
// all segments and guards them with its mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lowtide::hooks {

// What is free in a slab. Entries belong to blocks by index; `requested` is 0 where nobody owns the
// block, also while its free is being reported and the block cannot be handed out yet.
struct SlabBook {
  static constexpr uint32_t kMaxBlocks = 1024;
  uint64_t free_bits[kMaxBlocks / 64] = {};
  uint16_t requested[kMaxBlocks] = {};  // bytes
};

struct Segment {
  enum class State : uint8_t { cached, large, slab };

  std::byte* base = nullptr;
  size_t bytes = 0;
  State state = State::cached;

  // large: bytes asked for; 0 while the free is being reported
  size_t requested = 0;

  // slab
  std::unique_ptr<SlabBook> book;
  uint32_t size_class = 0;
  uint32_t shelf_slot = 0;
  uint32_t free_blocks = 0;
  uint32_t first_free_word = 0;  // no free bit in any lower word of the book

  // cached: of the same size
  Segment* bin_previous = nullptr;
  Segment* bin_next = nullptr;
};

}  // namespace lowtide::hooks
