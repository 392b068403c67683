#include "hooks/slab_pool.h"

#include <algorithm>
#include <bit>
#include <new>

namespace lowtide::hooks {
namespace {

constexpr uint32_t kNoBlock = UINT32_MAX;

// Index of the block that starts at `block`; kNoBlock when none does.
uint32_t index_of(const Segment* slab, const void* block, uint32_t blocks) noexcept {
  const auto offset = static_cast<uint32_t>(static_cast<const std::byte*>(block) - slab->base);
  const auto size = static_cast<uint32_t>(size_class_bytes(slab->size_class));
  const uint32_t index = offset / size;
  return index < blocks && index * size == offset ? index : kNoBlock;
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
  return slot == LowestSet::kNone ? nullptr : shelf.slabs[slot];
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

  const uint32_t blocks = blocks_per_slab(size_class);
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
  return slab->base + index * size_class_bytes(slab->size_class);
}

size_t SlabPool::disown(Segment* slab, const void* block) const noexcept {
  const uint32_t index = index_of(slab, block, blocks_per_slab(slab->size_class));
  if (index == kNoBlock) return 0;
  const size_t bytes = slab->book->requested[index];
  slab->book->requested[index] = 0;
  return bytes;
}

bool SlabPool::put(Segment* slab, const void* block) noexcept {
  const uint32_t blocks = blocks_per_slab(slab->size_class);
  const uint32_t index = index_of(slab, block, blocks);
  slab->book->free_bits[index / 64] |= uint64_t{1} << (index % 64);
  slab->first_free_word = std::min(slab->first_free_word, index / 64);
  Shelf& shelf = shelves_[slab->size_class];
  if (++slab->free_blocks == blocks) {
    shelf.roomy.remove(slab->shelf_slot);
    shelf.slabs[slab->shelf_slot] = nullptr;
    shelf.vacant.add(slab->shelf_slot);
    return true;
  }
  if (slab->free_blocks == 1) shelf.roomy.add(slab->shelf_slot);
  return false;
}

size_t SlabPool::requested(const Segment* slab, const void* block) const noexcept {
  const uint32_t index = index_of(slab, block, blocks_per_slab(slab->size_class));
  return index == kNoBlock ? 0 : slab->book->requested[index];
}

}  // namespace lowtide::hooks
