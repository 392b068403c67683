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
