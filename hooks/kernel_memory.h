// Memory straight from the kernel, zeroed, for code that must not touch the heap: a FlatTable's
// slots, or an array that lives for ever. Rounded up to pages by the kernel. Thread-safe, nothing
// is thrown.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace lowtide::hooks {

struct KernelMemory {
  // Null when there is none.
  template <typename T>
  static T* make(size_t count) noexcept {
    void* const pages = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    T* const first = static_cast<T*>(pages);
    for (size_t i = 0; i < count; ++i) new (first + i) T;
    return first;
  }
  template <typename T>
  static void release(T* first, size_t count) noexcept {
    munmap(first, count * sizeof(T));
  }
};

}  // namespace lowtide::hooks
