// Hashes that are the same on every run and every machine: keys, fingerprints, memory digests.
//
// Not cryptographic: they find accidents, not attackers. The results go into files, so the
// functions are part of the file formats; changing one means a new format version.
// `Hasher` mixes a sequence of values into 64 bits: add(1).add(2) differs from add(2).add(1), and
// texts carry their length, so add("ab").add("c") differs from add("a").add("bc").
// `hash_bytes` digests memory into 128 bits at about memory speed.
// No state beyond the object, nothing thrown.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lowtide {

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest128&, const Digest128&) = default;
};

// Digest of `size` bytes at `data` (null is fine when size == 0), which need no alignment.
[[nodiscard]] Digest128 hash_bytes(const void* data, size_t size) noexcept;

class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0) noexcept : state_(seed ^ kSeed) {}

  template <typename T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  Hasher& add(T value) noexcept {
    mix(static_cast<uint64_t>(value));
    return *this;
  }
  // The bit pattern: 0.0 and -0.0 differ, and so do NaNs of different bits.
  Hasher& add(double value) noexcept { return add(std::bit_cast<uint64_t>(value)); }
  Hasher& add(std::string_view text) noexcept;

  [[nodiscard]] uint64_t value() const noexcept { return finish(state_); }

 private:
  static constexpr uint64_t kSeed = 0x6c6f77746964652eULL;
  // Odd, about half the bits set, no pattern: the fraction of sqrt(2) and of sqrt(3).
  static constexpr uint64_t kStep = 0x6a09e667f3bcc909ULL;
  static constexpr uint64_t kSpread = 0xbb67ae8584caa73bULL;

  // One-to-one in the value and in the state: one differing value can never be lost again.
  void mix(uint64_t value) noexcept {
    uint64_t v = (value + kStep) * kSpread;
    v ^= v >> 32;
    state_ = (std::rotl(state_, 27) ^ v) * kStep + kSpread;
    state_ ^= state_ >> 29;
  }
  static uint64_t finish(uint64_t v) noexcept {
    v ^= v >> 31;
    v *= kSpread;
    v ^= v >> 29;
    v *= kStep;
    return v ^ (v >> 32);
  }

  uint64_t state_;
};

}  // namespace lowtide
