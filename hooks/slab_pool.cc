#include "hooks/slab_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace lowtide::hooks {
namespace {

constexpr uint32_t kNoBlock = UINT32_MAX;

// Index of the block that starts at `block`; kNoBlock when none does.
uint32_t index_of(const Segment* slab, const void* block) noexcept {
  const SlabShape& shape = kSlabShapes[slab->size_class];
  const auto offset = static_cast<uint32_t>(static_cast<const std::byte*>(block) - slab->base);
  const auto index = static_cast<uint32_t>(offset * shape.reciprocal >> 32);
  return index < shape.blocks && index * shape.block_bytes == offset ? index : kNoBlock;
}

}  // namespace

void LowestSet::resize_for(size_t index) {
  if (words_.size() <= index / 64) words_.resize(index / 64 + 1);
}

void LowestSet::add(size_t index) noexcept {
  words_[index / 64] |= uint64_t{1} << (index % 64);
  first_ = std::min(first_, index / 64);
}

size_t LowestSet::lowest() noexcept {
  for (; first_ < words_.size(); ++first_) {
    if (words_[first_] != 0) {
      return first_ * 64 + static_cast<size_t>(std::countr_zero(words_[first_]));
    }
  }
  return kNone;
}

Segment* SlabPool::slab_with_room(uint32_t size_class) noexcept {
  Shelf& shelf = shelves_[size_class];
  const size_t slot = shelf.roomy.lowest();
  if (slot != LowestSet::kNone) return shelf.slabs[slot];
  if (shelf.spare == nullptr) return nullptr;
  shelf.roomy.add(shelf.spare->shelf_slot);
  return unset_spare(shelf, size_class);
}

bool SlabPool::adopt(Segment* segment, uint32_t size_class) noexcept {
  Shelf& shelf = shelves_[size_class];
  size_t slot = shelf.vacant.lowest();
  try {
    if (segment->book == nullptr) segment->book = std::make_unique<SlabBook>();
    if (slot == LowestSet::kNone) {
      slot = shelf.slabs.size();
      shelf.roomy.resize_for(slot);
      shelf.vacant.resize_for(slot);
      shelf.slabs.push_back(nullptr);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  shelf.vacant.remove(slot);
  shelf.slabs[slot] = segment;
  shelf.roomy.add(slot);

  const uint32_t blocks = kSlabShapes[size_class].blocks;
  segment->state = Segment::State::slab;
  segment->size_class = size_class;
  segment->shelf_slot = static_cast<uint32_t>(slot);
  segment->free_blocks = blocks;
  segment->first_free_word = 0;
  for (uint32_t word = 0; word * 64 < blocks; ++word) {
    const uint32_t left = blocks - word * 64;
    segment->book->free_bits[word] = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  }
  return true;
}

void* SlabPool::take(Segment* slab, size_t requested) noexcept {
  SlabBook& book = *slab->book;
  uint32_t word = slab->first_free_word;
  while (book.free_bits[word] == 0) ++word;
  slab->first_free_word = word;
  const auto index = word * 64 + static_cast<uint32_t>(std::countr_zero(book.free_bits[word]));
  book.free_bits[word] &= book.free_bits[word] - 1;
  book.requested[index] = static_cast<uint16_t>(requested);
  if (--slab->free_blocks == 0) shelves_[slab->size_class].roomy.remove(slab->shelf_slot);
  return slab->base + index * kSlabShapes[slab->size_class].block_bytes;
}

size_t SlabPool::disown(Segment* slab, const void* block) noexcept {
  const uint32_t index = index_of(slab, block);
  if (index == kNoBlock) return 0;
  const size_t bytes = slab->book->requested[index];
  slab->book->requested[index] = 0;
  return bytes;
}

bool SlabPool::put(Segment* slab, const void* block) noexcept {
  const uint32_t index = index_of(slab, block);
  slab->book->free_bits[index / 64] |= uint64_t{1} << (index % 64);
  slab->first_free_word = std::min(slab->first_free_word, index / 64);
  Shelf& shelf = shelves_[slab->size_class];
  if (++slab->free_blocks == kSlabShapes[slab->size_class].blocks) {
    shelf.roomy.remove(slab->shelf_slot);
    if (shelf.spare == nullptr) {
      set_spare(shelf, slab->size_class, slab);
      return false;
    }
    leave_shelf(shelf, slab);
    return true;
  }
  if (slab->free_blocks == 1) shelf.roomy.add(slab->shelf_slot);
  return false;
}

Segment* SlabPool::take_spare() noexcept {
  if (classes_with_spare_ == 0) return nullptr;
  const auto size_class = static_cast<uint32_t>(std::countr_zero(classes_with_spare_));
  Shelf& shelf = shelves_[size_class];
  leave_shelf(shelf, shelf.spare);
  return unset_spare(shelf, size_class);
}

void SlabPool::set_spare(Shelf& shelf, uint32_t size_class, Segment* slab) noexcept {
  shelf.spare = slab;
  classes_with_spare_ |= 1u << size_class;
  spare_bytes_ += slab->bytes;
}

Segment* SlabPool::unset_spare(Shelf& shelf, uint32_t size_class) noexcept {
  classes_with_spare_ &= ~(1u << size_class);
  spare_bytes_ -= shelf.spare->bytes;
  return std::exchange(shelf.spare, nullptr);
}

void SlabPool::leave_shelf(Shelf& shelf, const Segment* slab) noexcept {
  shelf.slabs[slab->shelf_slot] = nullptr;
  shelf.vacant.add(slab->shelf_slot);
}

size_t SlabPool::requested(const Segment* slab, const void* block) const noexcept {
  const uint32_t index = index_of(slab, block);
  return index == kNoBlock ? 0 : slab->book->requested[index];
}

}  // namespace lowtide::hooks
