#include "hooks/backend_cpu.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

namespace lowtide::hooks {
namespace {

TEST(CpuBackend, EverySegmentIsAlignedZeroedAndApart) {
  const auto backend = make_cpu_backend();
  std::mt19937 random(2);
  struct Piece {
    char* base;
    size_t bytes;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 400; ++i) {
    if (pieces.size() > 20) {
      const size_t victim = random() % pieces.size();
      backend->give_back(pieces[victim].base, pieces[victim].bytes);
      pieces[victim] = pieces.back();
      pieces.pop_back();
    }
    const size_t bytes = backend->granularity() * (1 + random() % 70);
    auto* const base = static_cast<char*>(backend->acquire(bytes));
    ASSERT_NE(base, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(base) % backend->alignment(), 0u);
    for (size_t at = 0; at < bytes; at += 512) ASSERT_EQ(base[at], 0);
    std::memset(base, 1, bytes);
    for (const Piece& piece : pieces) {
      ASSERT_TRUE(base + bytes <= piece.base || piece.base + piece.bytes <= base);
    }
    pieces.push_back({base, bytes});
  }
  for (const Piece& piece : pieces) backend->give_back(piece.base, piece.bytes);
}

TEST(CpuBackend, WhatIsGivenBackLeavesTheProcess) {
  constexpr size_t kBytes = size_t{8} << 20;
  const auto backend = make_cpu_backend();
  void* const base = backend->acquire(kBytes);
  std::memset(base, 1, kBytes);
  std::vector<unsigned char> resident(kBytes / 4096, 0);
  ASSERT_EQ(mincore(base, kBytes, resident.data()), 0);
  EXPECT_EQ(std::count(resident.begin(), resident.end(), 1), std::ssize(resident));
  backend->give_back(base, kBytes);
  EXPECT_EQ(mincore(base, kBytes, resident.data()), -1);
  EXPECT_EQ(errno, ENOMEM);  // nothing is mapped there
}

int64_t resident_pages(void* base, size_t bytes) {
  std::vector<unsigned char> resident(bytes / 4096, 0);
  EXPECT_EQ(mincore(base, bytes, resident.data()), 0);
  return std::count(resident.begin(), resident.end(), 1);
}

bool is_mapped(const void* page) {
  unsigned char resident = 0;
  return mincore(const_cast<void*>(page), 4096, &resident) == 0;
}

TEST(CpuBackend, AnExchangedSegmentBringsItsPages) {
  const auto backend = make_cpu_backend();
  std::mt19937 random(3);
  std::vector<Extent> live;
  const auto fill = [&](void* base, size_t bytes) {
    ASSERT_NE(base, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(base) % backend->alignment(), 0u);
    std::memset(base, 1, bytes);
    for (const Extent& other : live) {
      auto* const begin = static_cast<char*>(base);
      auto* const other_begin = static_cast<char*>(other.base);
      ASSERT_TRUE(begin + bytes <= other_begin || other_begin + other.bytes <= begin);
    }
    live.push_back({base, bytes});
  };
  for (int i = 0; i < 12; ++i) fill(backend->acquire(size_t{64} << 10), size_t{64} << 10);
  int64_t pages_saved = 0, rests = 0;
  for (int i = 0; i < 2000; ++i) {
    std::shuffle(live.begin(), live.end(), random);
    const size_t count = 1 + random() % 5;
    const std::vector<Extent> old(live.end() - static_cast<std::ptrdiff_t>(count), live.end());
    live.resize(live.size() - count);
    size_t old_bytes = 0;
    for (const Extent& extent : old) old_bytes += extent.bytes;
    const size_t bytes = 4096 * (1 + random() % 256);
    Extent rest;
    const size_t most_rest = random() % 2 == 0 ? 0 : 4096 * (random() % 64);
    void* const base = backend->exchange(old, bytes, most_rest, rest);
    ASSERT_NE(base, nullptr);
    const int64_t pages = resident_pages(base, bytes);
    EXPECT_LE(pages, static_cast<int64_t>(std::min(old_bytes, bytes) / 4096));
    EXPECT_LE(rest.bytes, std::min(most_rest, old_bytes - std::min(old_bytes, bytes)));
    pages_saved += pages;
    if (rest.bytes != 0) {
      EXPECT_EQ(resident_pages(rest.base, rest.bytes), static_cast<int64_t>(rest.bytes / 4096));
      ++rests;
    }
    for (const Extent& extent : old) {
      auto* const page = static_cast<char*>(extent.base);
      const auto lies_in = [page](void* other, size_t length) {
        return page >= other && page < static_cast<char*>(other) + length;
      };
      EXPECT_TRUE(lies_in(base, bytes) || lies_in(rest.base, rest.bytes) || !is_mapped(page));
    }
    fill(base, bytes);
    if (rest.bytes != 0) fill(rest.base, rest.bytes);
    while (live.size() < 12) {
      const size_t more = 4096 * (1 + random() % 128);
      fill(backend->acquire(more), more);
    }
  }
  EXPECT_GT(pages_saved, 2000 * 64);  // of 128 a round
  EXPECT_GT(rests, 100);
  for (const Extent& extent : live) backend->give_back(extent.base, extent.bytes);
}

TEST(CpuBackend, AnExchangeOfASplitMappingStillGivesASegment) {
  const auto backend = make_cpu_backend();
  constexpr size_t kBytes = size_t{1} << 20;
  std::vector<Extent> old;
  for (int i = 0; i < 3; ++i) {
    old.push_back({backend->acquire(kBytes), kBytes});
    std::memset(old.back().base, 1, kBytes);
  }
  // Two mappings from now on.
  ASSERT_EQ(madvise(static_cast<char*>(old[1].base) + kBytes / 2, kBytes / 2, MADV_DONTFORK), 0);
  Extent rest;
  void* const next = backend->exchange(old, 3 * kBytes, 0, rest);
  ASSERT_NE(next, nullptr);
  std::memset(next, 2, 3 * kBytes);
  for (const Extent& extent : old) EXPECT_FALSE(is_mapped(extent.base));
  backend->give_back(next, 3 * kBytes);
}

TEST(CpuBackend, MoreThanTheMachineCanMapIsNull) {
  const auto backend = make_cpu_backend();
  EXPECT_EQ(backend->acquire(size_t{1} << 47), nullptr);
  void* const base = backend->acquire(4096);
  EXPECT_NE(base, nullptr);
  backend->give_back(base, 4096);
}

TEST(CountingBackend, AddressesLookRealAndNeverRepeat) {
  const auto backend = make_counting_backend(8192);
  EXPECT_EQ(backend->granularity(), 8192u);
  uintptr_t last = 0;
  for (const size_t bytes : {size_t{8192}, size_t{1} << 30, size_t{65536}, size_t{8192}}) {
    const auto base = reinterpret_cast<uintptr_t>(backend->acquire(bytes));
    EXPECT_EQ(base % backend->alignment(), 0u);
    EXPECT_GT(base, last);
    last = base + bytes - 1;
  }
  EXPECT_EQ(backend->acquire(size_t{1} << 47), nullptr);
}

}  // namespace
}  // namespace lowtide::hooks
