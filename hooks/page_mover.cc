#include "hooks/page_mover.h"

#include <sys/mman.h>

#include <algorithm>

namespace lowtide::hooks {
namespace {

void unmap(std::byte* base, size_t bytes) {
  if (bytes != 0) munmap(base, bytes);
}

}  // namespace

void* map_pages(void* where, size_t bytes, int protection, int extra_flags) noexcept {
  void* const base =
      mmap(where, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

void* reserve_address_space(size_t bytes) noexcept {
  // More than needed, so that an aligned part lies in it; the rest is dropped.
  const size_t span = bytes + kSegmentAlignment - kPageBytes;
  if (span < bytes) return nullptr;
  auto* const low = static_cast<std::byte*>(map_pages(nullptr, span, PROT_NONE, MAP_NORESERVE));
  if (low == nullptr) return nullptr;
  const size_t head = (kSegmentAlignment - reinterpret_cast<uintptr_t>(low) % kSegmentAlignment) %
                      kSegmentAlignment;
  unmap(low, head);
  unmap(low + head + bytes, span - head - bytes);
  return low + head;
}

PageMover::Place::Place(size_t wanted) noexcept : bytes(wanted) {
  if (wanted != 0) begin = static_cast<std::byte*>(reserve_address_space(wanted));
}

size_t PageMover::Place::take(std::byte* from, size_t available) noexcept {
  const size_t moved = std::min(available, bytes - filled);
  if (begin == nullptr || moved < kWorthMoving || made.count + 1 >= Pieces::kMost) return 0;
  if (mremap(from, moved, moved, MREMAP_MAYMOVE | MREMAP_FIXED, begin + filled) == MAP_FAILED) {
    abandon(moved);  // somebody has split the mapping (madvise on a part of it)
    return 0;
  }
  made.add(moved);
  filled += moved;
  return moved;
}

// After a failed move the kernel may have unmapped the target, and another thread may own it by
// now: those `hole_bytes` are left alone.
void PageMover::Place::abandon(size_t hole_bytes) noexcept {
  unmap(begin, filled);
  unmap(begin + filled + hole_bytes, bytes - filled - hole_bytes);
  begin = nullptr;
}

void* PageMover::exchange(std::span<const Extent> old, size_t bytes, size_t most_rest,
                          Extent& rest) noexcept {
  size_t old_bytes = 0;
  const Extent* in_place = nullptr;  // large enough to become the new segment where it is
  for (const Extent& extent : old) {
    old_bytes += extent.bytes;
    if (extent.bytes >= bytes && in_place == nullptr) in_place = &extent;
  }
  const bool may_sew = pieces_.has_room();
  size_t rest_bytes = std::min(old_bytes > bytes ? old_bytes - bytes : 0, most_rest);
  if (rest_bytes < kWorthMoving || !may_sew) rest_bytes = 0;
  Place made(in_place == nullptr && may_sew ? bytes : 0);
  Place left(rest_bytes);

  for (const Extent& extent : old) {
    auto* from = static_cast<std::byte*>(extent.base);
    Pieces pieces = pieces_.of(extent.base, extent.bytes);
    size_t stays = &extent == in_place ? bytes : 0;
    for (size_t k = 0; k < pieces.count; ++k) {
      std::byte* const end = from + pieces.bytes[k];
      const size_t kept = std::min(stays, pieces.bytes[k]);
      stays -= kept;
      from += kept;
      from += made.take(from, static_cast<size_t>(end - from));
      from += left.take(from, static_cast<size_t>(end - from));
      unmap(from, static_cast<size_t>(end - from));
      from = end;
    }
    pieces_.forget(extent.base);
    if (&extent == in_place) {
      pieces.cut(bytes);
      pieces_.record(extent.base, pieces);
    }
  }

  if (left.begin != nullptr) {
    unmap(left.begin + left.filled, left.bytes - left.filled);
    if (left.filled != 0) {
      rest = {left.begin, left.filled};
      pieces_.record(left.begin, left.made);
    }
  }
  if (in_place != nullptr) return in_place->base;
  if (made.begin == nullptr) return nullptr;
  if (made.filled < bytes) {
    if (map_pages(made.begin + made.filled, bytes - made.filled, PROT_READ | PROT_WRITE,
                  MAP_FIXED) == nullptr) {
      unmap(made.begin, bytes);
      return nullptr;
    }
    made.made.add(bytes - made.filled);
  }
  pieces_.record(made.begin, made.made);
  return made.begin;
}

}  // namespace lowtide::hooks
