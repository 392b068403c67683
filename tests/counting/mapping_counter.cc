#include "counting/mapping_counter.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace lowtide::counting {
namespace {

struct Books {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> counted;  // begin -> end
  MappedBytes bytes;
};

// Never destroyed: libraries unmap memory while the process ends.
Books& books() {
  static Books& instance = *new Books;
  return instance;
}

bool is_lowtide(const void* return_address) {
  Dl_info info{};
  if (dladdr(return_address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : info.dli_fname, "liblowtide", 10) == 0;
}

uintptr_t page_end(uintptr_t begin, size_t bytes) { return begin + (bytes + 4095) / 4096 * 4096; }

// Takes [begin, end) out of what is counted. The lock is held.
void forget(uintptr_t begin, uintptr_t end) {
  auto& counted = books().counted;
  auto it = counted.upper_bound(begin);
  if (it != counted.begin()) --it;
  while (it != counted.end() && it->first < end) {
    const auto [low, high] = *it;
    if (high <= begin) {
      ++it;
      continue;
    }
    it = counted.erase(it);
    books().bytes.current -= static_cast<int64_t>(std::min(high, end) - std::max(low, begin));
    if (low < begin) counted.emplace(low, begin);
    if (end < high) counted.emplace(end, high);
  }
}

void remember(uintptr_t begin, uintptr_t end) {
  books().counted.emplace(begin, end);
  books().bytes.current += static_cast<int64_t>(end - begin);
  books().bytes.peak = std::max(books().bytes.peak, books().bytes.current);
}

template <typename Function>
Function next_in_line(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void* counted_mmap(void* where, size_t bytes, int protection, int flags, int file, off_t offset,
                   const void* return_address) {
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = next_in_line<Mmap>("mmap");
  constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS;
  const bool counts =
      (protection & PROT_WRITE) != 0 && (flags & kKind) == kKind && is_lowtide(return_address);
  // Call and count in one piece: else another thread could unmap and map the same place in between.
  const std::lock_guard lock(books().mutex);
  void* const base = real(where, bytes, protection, flags, file, offset);
  if (base == MAP_FAILED) return base;
  const auto begin = reinterpret_cast<uintptr_t>(base);
  forget(begin, page_end(begin, bytes));  // a fixed mapping replaces what was there
  if (counts) remember(begin, page_end(begin, bytes));
  return base;
}

void* counted_mremap(void* base, size_t bytes, size_t new_bytes, int flags, void* new_base,
                     const void* return_address) {
  using Mremap = void* (*)(void*, size_t, size_t, int, ...);
  static const auto real = next_in_line<Mremap>("mremap");
  const bool counts = is_lowtide(return_address);
  const std::lock_guard lock(books().mutex);
  void* const moved = real(base, bytes, new_bytes, flags, new_base);
  if (moved == MAP_FAILED) return moved;
  const auto old_begin = reinterpret_cast<uintptr_t>(base);
  const auto begin = reinterpret_cast<uintptr_t>(moved);
  // The kernel moves pages: old and new are never both there.
  forget(old_begin, page_end(old_begin, bytes));
  forget(begin, page_end(begin, new_bytes));
  if (counts) remember(begin, page_end(begin, new_bytes));
  return moved;
}

}  // namespace

MappedBytes mapped_bytes() {
  const std::lock_guard lock(books().mutex);
  return books().bytes;
}

void reset_mapped_peak() {
  const std::lock_guard lock(books().mutex);
  books().bytes.peak = books().bytes.current;
}

}  // namespace lowtide::counting

extern "C" {

__attribute__((noinline)) void* mmap(void* where, size_t bytes, int protection, int flags, int file,
                                     off_t offset) noexcept {
  return lowtide::counting::counted_mmap(where, bytes, protection, flags, file, offset,
                                         __builtin_return_address(0));
}

__attribute__((noinline)) void* mmap64(void* where, size_t bytes, int protection, int flags,
                                       int file, off64_t offset) noexcept {
  return lowtide::counting::counted_mmap(where, bytes, protection, flags, file, offset,
                                         __builtin_return_address(0));
}

__attribute__((noinline)) void* mremap(void* base, size_t bytes, size_t new_bytes, int flags,
                                       ...) noexcept {
  va_list more;
  va_start(more, flags);
  void* const new_base = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  return lowtide::counting::counted_mremap(base, bytes, new_bytes, flags, new_base,
                                           __builtin_return_address(0));
}

int munmap(void* base, size_t bytes) noexcept {
  using Munmap = int (*)(void*, size_t);
  static const auto real = lowtide::counting::next_in_line<Munmap>("munmap");
  const auto begin = reinterpret_cast<uintptr_t>(base);
  const std::lock_guard lock(lowtide::counting::books().mutex);
  const int result = real(base, bytes);
  if (result == 0) {
    lowtide::counting::forget(begin, lowtide::counting::page_end(begin, bytes));
  }
  return result;
}

}  // extern "C"
