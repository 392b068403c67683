// Small blocks: slabs of equal blocks, one shelf of slabs per size class.
//
// A block always comes from the oldest slab of its class that has room, and from the lowest free
// index in it. That packs live blocks into old slabs so that young ones run empty and become cached
// segments again, and it depends on the order of calls only, never on addresses.
// One slab per class may stay on its shelf when it runs empty (a spare), so that a lone block that
// comes and goes costs no more than one among many. Spares can be taken away at any time.
// Owns nothing but its indices. No thread safety. Nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hooks/segment.h"
#include "hooks/size_classes.h"

namespace lowtide::hooks {

// A set of small integers that answers "the lowest one" fast.
class LowestSet {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  void resize_for(size_t index);  // may throw std::bad_alloc
  void add(size_t index) noexcept;
  void remove(size_t index) noexcept { words_[index / 64] &= ~(uint64_t{1} << (index % 64)); }
  [[nodiscard]] size_t lowest() noexcept;

 private:
  std::vector<uint64_t> words_;
  size_t first_ = 0;  // no member in any lower word
};

class SlabPool {
 public:
  // The slab the next block of this class comes from; null = a new slab is needed.
  [[nodiscard]] Segment* slab_with_room(uint32_t size_class) noexcept;
  // Makes an empty segment a slab of this class. False when out of memory for its book.
  [[nodiscard]] bool adopt(Segment* segment, uint32_t size_class) noexcept;
  // REQUIRES: the slab has room; 0 < requested <= the block size of its class.
  [[nodiscard]] void* take(Segment* slab, size_t requested) noexcept;

  // Ends the ownership of a block, which stays unavailable until put(). Returns the bytes that were
  // requested; 0 = not a live block of this slab.
  [[nodiscard]] size_t disown(Segment* slab, const void* block) noexcept;
  // Makes a disowned block available again. True when the slab ran empty and has left its shelf.
  [[nodiscard]] bool put(Segment* slab, const void* block) noexcept;
  // Takes a spare off its shelf; null = there is none.
  [[nodiscard]] Segment* take_spare() noexcept;
  [[nodiscard]] size_t spare_bytes() const noexcept { return spare_bytes_; }
  // Bytes asked for by the owner of the block; 0 = not a live block.
  [[nodiscard]] size_t requested(const Segment* slab, const void* block) const noexcept;

 private:
  struct Shelf {
    std::vector<Segment*> slabs;  // by slot
    LowestSet roomy;              // slots of slabs with a free block
    LowestSet vacant;             // slots without a slab
    Segment* spare = nullptr;     // an empty slab with a slot of its own; not among the roomy
  };

  void set_spare(Shelf& shelf, uint32_t size_class, Segment* slab) noexcept;
  Segment* unset_spare(Shelf& shelf, uint32_t size_class) noexcept;
  static void leave_shelf(Shelf& shelf, const Segment* slab) noexcept;

  Shelf shelves_[kSizeClassCount];
  uint32_t classes_with_spare_ = 0;  // one bit each
  size_t spare_bytes_ = 0;
  static_assert(kSizeClassCount <= 32);
};

}  // namespace lowtide::hooks
