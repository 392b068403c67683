// Device memory of the double: size, limit, alignment, copies.
#include <vector>

#include "doubles/cuda/cuda_double_fixture.h"

namespace cuda_double_test {
namespace {

TEST_F(CudaDouble, MemoryIsAlignedCountedAndGivenBack) {
  const uint64_t before = lowtide_double_bytes(0);
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, 5 * kMiB + 1), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (2 * kMiB), 0u);
  EXPECT_EQ(lowtide_double_bytes(0), before + 5 * kMiB + 1);
  EXPECT_EQ(cudaFree(block), cudaSuccess);
  EXPECT_EQ(lowtide_double_bytes(0), before);
  EXPECT_EQ(lowtide_double_largest_bytes(0), before + 5 * kMiB + 1);
  lowtide_double_reset_largest(0);
  EXPECT_EQ(lowtide_double_largest_bytes(0), before);
}

TEST_F(CudaDouble, MemoryEndsAtTheLimit) {
  lowtide_double_set_memory(0, lowtide_double_bytes(0) + 8 * kMiB);
  Block fits(8 * kMiB);
  void* more = &more;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "read once";
  size_t free = 1, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(total, lowtide_double_bytes(0));
}

TEST_F(CudaDouble, ZeroAndHugeRequestsAreAnswered) {
  void* block = &block;
  EXPECT_EQ(cudaMalloc(&block, 0), cudaSuccess);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(cudaMalloc(&block, SIZE_MAX), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(CudaDouble, CopiesAndMemsetsMoveBytes) {
  Block block;
  std::vector<int> from(1000, 7), to(1000, 0);
  const size_t bytes = from.size() * sizeof(int);
  ASSERT_EQ(cudaMemcpyAsync(block.address, from.data(), bytes, cudaMemcpyHostToDevice, one_),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(block.at(kMiB), block.address, bytes, cudaMemcpyDefault, one_),
            cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(block.at(kMiB), 0, sizeof(int), one_), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(to.data(), block.at(kMiB), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(to[0], 0);
  EXPECT_EQ(to[1], 7);
  EXPECT_EQ(to[999], 7);
}

}  // namespace
}  // namespace cuda_double_test
