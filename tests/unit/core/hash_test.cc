#include "core/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <unordered_set>
#include <vector>

namespace lowtide {
namespace {

std::vector<unsigned char> random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> bytes(size);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// The values are part of the file formats: a change here means a new format version.
TEST(HashTest, ValuesNeverChange) {
  EXPECT_EQ(Hasher().value(), 0xcaf68ef63aaf8a84ULL);
  EXPECT_EQ(Hasher().add(1).add(std::string_view("aten::mm")).add(true).value(),
            0xd743eea620c64a1eULL);
  EXPECT_EQ(hash_bytes(nullptr, 0), (Digest128{0x8cf26ff9eaa75d63ULL, 0xddd93f6f117c23feULL}));
  EXPECT_EQ(hash_bytes("The quick brown fox", 19),
            (Digest128{0xfcf3261df5e7909eULL, 0x275caf2ec537a7e9ULL}));
}

TEST(HasherTest, OrderTypeBoundariesAndSeedMatter) {
  EXPECT_NE(Hasher().add(1).add(2).value(), Hasher().add(2).add(1).value());
  EXPECT_NE(Hasher().add(std::string_view("ab")).add(std::string_view("c")).value(),
            Hasher().add(std::string_view("a")).add(std::string_view("bc")).value());
  EXPECT_NE(Hasher().add(0).value(), Hasher().value());
  EXPECT_NE(Hasher(1).add(7).value(), Hasher(2).add(7).value());
  EXPECT_NE(Hasher().add(0.0).value(), Hasher().add(-0.0).value());
}

TEST(HasherTest, NegativeNumbersHashAsTheirSignExtension) {
  EXPECT_EQ(Hasher().add(int32_t{-1}).value(), Hasher().add(int64_t{-1}).value());
}

TEST(HasherTest, AMillionSmallSequencesDoNotCollide) {
  std::unordered_set<uint64_t> seen;
  for (int a = 0; a < 1000; ++a) {
    for (int b = 0; b < 1000; ++b) seen.insert(Hasher().add(a).add(b).value());
  }
  EXPECT_EQ(seen.size(), 1'000'000U);
}

TEST(HashBytesTest, DoesNotDependOnAlignment) {
  const auto bytes = random_bytes(1000, 1);
  const Digest128 expected = hash_bytes(bytes.data(), bytes.size());
  for (size_t shift = 1; shift < 16; ++shift) {
    std::vector<unsigned char> moved(bytes.size() + shift);
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    EXPECT_EQ(hash_bytes(moved.data() + shift, bytes.size()), expected);
  }
}

TEST(HashBytesTest, EveryLengthOfZerosDiffers) {
  const std::vector<unsigned char> zeros(2000, 0);
  std::unordered_set<uint64_t> low, high;
  for (size_t n = 0; n <= zeros.size(); ++n) {
    const Digest128 digest = hash_bytes(zeros.data(), n);
    low.insert(digest.low);
    high.insert(digest.high);
  }
  EXPECT_EQ(low.size(), zeros.size() + 1);
  EXPECT_EQ(high.size(), zeros.size() + 1);
}

// A wrong tensor usually differs in very few bits; both halves must see each such difference.
TEST(HashBytesTest, AllPairsOfBitFlipsInTwoBlocksGiveDifferentHalves) {
  for (const uint64_t seed : {0, 1}) {
    auto bytes = seed == 0 ? std::vector<unsigned char>(128, 0) : random_bytes(128, seed);
    std::unordered_set<uint64_t> low, high;
    const size_t bits = bytes.size() * 8;
    const auto flip = [&](size_t bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    };
    size_t count = 0;
    for (size_t i = 0; i < bits; ++i) {
      flip(i);
      for (size_t j = i; j < bits; ++j) {
        if (j > i) flip(j);
        const Digest128 digest = hash_bytes(bytes.data(), bytes.size());
        low.insert(digest.low);
        high.insert(digest.high);
        ++count;
        if (j > i) flip(j);
      }
      flip(i);
    }
    EXPECT_EQ(low.size(), count);
    EXPECT_EQ(high.size(), count);
  }
}

TEST(HashBytesTest, OneFlippedBitChangesAboutHalfOfTheDigest) {
  auto bytes = random_bytes(256, 3);
  const Digest128 before = hash_bytes(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    const Digest128 after = hash_bytes(bytes.data(), bytes.size());
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    const int changed =
        std::popcount(before.low ^ after.low) + std::popcount(before.high ^ after.high);
    EXPECT_GT(changed, 34) << bit;  // 64 on average; 34 is 5 standard deviations away
    EXPECT_LT(changed, 94) << bit;
  }
}

TEST(HashBytesTest, SwappedWordsAndBlocksAreSeen) {
  const auto bytes = random_bytes(64 * 8, 4);
  const Digest128 before = hash_bytes(bytes.data(), bytes.size());
  for (const size_t unit : {size_t{4}, size_t{8}, size_t{16}, size_t{64}}) {
    for (size_t i = unit; i < bytes.size(); i += unit) {
      auto swapped = bytes;
      std::swap_ranges(swapped.begin(), swapped.begin() + static_cast<long>(unit),
                       swapped.begin() + static_cast<long>(i));
      EXPECT_NE(hash_bytes(swapped.data(), swapped.size()), before) << unit << " " << i;
    }
  }
}

}  // namespace
}  // namespace lowtide
