#include "core/hash.h"

#include <cstring>

namespace lowtide {
namespace {

// Fractions of the square roots of the first primes: fixed numbers nobody chose.
constexpr uint64_t kKeys[8] = {0x6a09e667f3bcc909ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL,
                               0xa54ff53a5f1d36f1ULL, 0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL,
                               0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};
constexpr size_t kLanes = 4;  // independent chains hide the latency of the multiplication
constexpr size_t kBlock = kLanes * 16;

uint64_t load(const unsigned char* p) noexcept {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

struct Lane {
  uint64_t a, b;

  // The full 128-bit product, so that no bit of either word stays where it was; the old halves and
  // the words are added again, so that a zero factor cannot hide the other one.
  void mix(uint64_t first, uint64_t second) noexcept {
    const uint64_t x = first ^ a;
    const uint64_t y = second ^ b;
    const auto product = static_cast<unsigned __int128>(x) * y;
    a = static_cast<uint64_t>(product) + std::rotl(y, 32);
    b = static_cast<uint64_t>(product >> 64) ^ (x + std::rotl(b, 29));
  }
};

void mix_block(Lane (&lanes)[kLanes], const unsigned char* p) noexcept {
  for (size_t i = 0; i < kLanes; ++i) lanes[i].mix(load(p + 16 * i), load(p + 16 * i + 8));
}

}  // namespace

Digest128 hash_bytes(const void* data, size_t size) noexcept {
  Lane lanes[kLanes] = {
      {kKeys[0], kKeys[1]}, {kKeys[2], kKeys[3]}, {kKeys[4], kKeys[5]}, {kKeys[6], kKeys[7]}};
  const auto* p = static_cast<const unsigned char*>(data);
  size_t left = size;
  for (; left >= kBlock; left -= kBlock, p += kBlock) mix_block(lanes, p);
  if (left > 0) {
    unsigned char tail[kBlock] = {};  // zeros are told from real zeros by the length below
    std::memcpy(tail, p, left);
    mix_block(lanes, tail);
  }
  Lane result{kKeys[4] ^ size, kKeys[1]};
  for (const Lane& lane : lanes) result.mix(lane.a, lane.b);
  for (size_t round = 0; round < 3; ++round) result.mix(kKeys[2 + round], kKeys[5 + round]);
  return {result.a, result.b};
}

Hasher& Hasher::add(std::string_view text) noexcept {
  const Digest128 digest = hash_bytes(text.data(), text.size());
  mix(digest.low);
  mix(digest.high);
  return *this;
}

}  // namespace lowtide
