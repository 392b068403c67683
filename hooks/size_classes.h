// Size classes of small blocks: steps of 64 bytes up to 512, then four per doubling up to 16 KiB.
// Above 512 bytes a block wastes less than 20 % of itself. Pure arithmetic: no state, no throw.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lowtide::hooks {

inline constexpr size_t kSlabBytes = 64 * 1024;
inline constexpr size_t kSizeClassCount = 28;

// Class of a request of 1 .. 16384 bytes.
[[nodiscard]] constexpr uint32_t size_class_of(size_t bytes) noexcept {
  if (bytes <= 512) return static_cast<uint32_t>((bytes - 1) / 64);
  const int doubling = std::bit_width(bytes - 1) - 10;  // 0: 513 .. 1024, 1: 1025 .. 2048, ...
  const size_t step = size_t{128} << doubling;
  return static_cast<uint32_t>(8 + 4 * doubling + static_cast<int>((bytes - 1) / step) - 4);
}

[[nodiscard]] constexpr size_t size_class_bytes(uint32_t size_class) noexcept {
  if (size_class < 8) return (size_t{size_class} + 1) * 64;
  const uint32_t doubling = (size_class - 8) / 4;
  return (size_t{128} << doubling) * (5 + (size_class - 8) % 4);
}

// A slab of one class, with what turns an offset into a block index without a division.
struct SlabShape {
  uint32_t block_bytes = 0;
  uint32_t blocks = 0;      // per slab
  uint64_t reciprocal = 0;  // index = offset * reciprocal >> 32, exact for offsets below kSlabBytes
};

inline constexpr auto kSlabShapes = [] {
  std::array<SlabShape, kSizeClassCount> shapes;
  for (uint32_t i = 0; i < kSizeClassCount; ++i) {
    const auto bytes = static_cast<uint32_t>(size_class_bytes(i));
    shapes[i] = {bytes, static_cast<uint32_t>(kSlabBytes / bytes), (uint64_t{1} << 32) / bytes + 1};
  }
  return shapes;
}();

static_assert(size_class_of(1) == 0 && size_class_of(512) == 7 && size_class_of(513) == 8);
static_assert(size_class_of(16 * 1024) == kSizeClassCount - 1);
static_assert(size_class_bytes(kSizeClassCount - 1) == 16 * 1024);

}  // namespace lowtide::hooks
