// Open-addressing hash table from a nonzero 64-bit key to a pointer: linear probing, erasure by
// backward shift (no tombstones), at most half full. Built for the allocation path: a hit is one
// multiply and usually one cache line. No thread safety. Nothing is thrown: insert() says whether
// the table could grow. Where the heap must not be touched, another `Memory` makes the slots.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace lowtide::hooks {

struct HeapMemory {
  // Null when out of memory.
  template <typename Slot>
  static Slot* make(size_t count) noexcept {
    return new (std::nothrow) Slot[count];
  }
  template <typename Slot>
  static void release(Slot* slots, size_t /*count*/) noexcept {
    delete[] slots;
  }
};

template <typename T, typename Memory = HeapMemory>
class FlatTable {
 public:
  // Null when absent.
  [[nodiscard]] T* find(uint64_t key) const noexcept {
    if (slots_ == nullptr) return nullptr;
    for (size_t i = home(key);; i = next(i)) {
      if (slots_[i].key == key) return slots_[i].value;
      if (slots_[i].key == 0) return nullptr;
    }
  }

  // Adds or replaces. False when out of memory (the table is then unchanged).
  [[nodiscard]] bool insert(uint64_t key, T* value) noexcept {
    if (2 * (size_ + 1) > capacity_ && !grow()) return false;
    Slot& slot = slots_[probe(key)];
    if (slot.key == 0) ++size_;
    slot = {key, value};
    return true;
  }

  void erase(uint64_t key) noexcept {
    if (slots_ == nullptr) return;
    size_t hole = probe(key);
    if (slots_[hole].key == 0) return;
    --size_;
    for (size_t i = next(hole); slots_[i].key != 0; i = next(i)) {
      // An entry may move into the hole only if the hole lies on its probe path.
      const size_t distance = (i - home(slots_[i].key)) & (capacity_ - 1);
      if (distance >= ((i - hole) & (capacity_ - 1))) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = {};
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].key != 0) visit(slots_[i].value);
    }
  }

  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    uint64_t key = 0;
    T* value = nullptr;
  };
  struct Release {
    void operator()(Slot* slots) const noexcept { Memory::release(slots, count); }
    size_t count = 0;
  };
  using Slots = std::unique_ptr<Slot[], Release>;

  [[nodiscard]] size_t home(uint64_t key) const noexcept {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }
  [[nodiscard]] size_t next(size_t i) const noexcept { return (i + 1) & (capacity_ - 1); }
  // Where `key` is, or the free slot where it belongs.
  [[nodiscard]] size_t probe(uint64_t key) const noexcept {
    size_t i = home(key);
    while (slots_[i].key != 0 && slots_[i].key != key) i = next(i);
    return i;
  }

  bool grow() noexcept {
    const size_t capacity = capacity_ == 0 ? 64 : 2 * capacity_;
    Slots slots(Memory::template make<Slot>(capacity), Release{capacity});
    if (slots == nullptr) return false;
    const size_t old_capacity = std::exchange(capacity_, capacity);
    slots.swap(slots_);
    shift_ = 64 - std::countr_zero(capacity);
    for (size_t i = 0; i < old_capacity; ++i) {
      if (slots[i].key != 0) slots_[probe(slots[i].key)] = slots[i];
    }
    return true;
  }

  Slots slots_;
  size_t capacity_ = 0;
  size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace lowtide::hooks
