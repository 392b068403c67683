// Each kind of misuse is caught by its name, and what is in order is not.
#include "doubles/cuda/cuda_double_fixture.h"

namespace cuda_double_test {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaDouble, DoubleFreeIsCaught) {
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  ASSERT_EQ(cudaFree(block), cudaSuccess);
  EXPECT_EQ(cudaFree(block), cudaErrorInvalidValue);
  EXPECT_EQ(misuse("double free"), 1u);
  EXPECT_THAT(lowtide_double_first_misuse("double free"), HasSubstr("cudaFree of 0x"));
}

TEST_F(CudaDouble, FreeOfAForeignPointerIsCaught) {
  Block block;
  int host = 0;
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(block.at(512)), cudaErrorInvalidValue) << "not where it begins";
  EXPECT_EQ(misuse("free of a foreign pointer"), 2u);
}

TEST_F(CudaDouble, AccessOfUnmappedMemoryIsCaught) {
  Block block(kMiB);
  EXPECT_EQ(cudaMemsetAsync(block.at(kMiB - 4), 0, 8, one_), cudaErrorInvalidValue);
  EXPECT_EQ(lowtide_double_touch(block.at(0), kMiB + 1, one_), cudaErrorInvalidValue);
  int host = 0;
  EXPECT_EQ(cudaMemcpyAsync(&host, block.at(0), 4, cudaMemcpyHostToDevice, one_),
            cudaErrorInvalidValue)
      << "a host address is no device's";
  EXPECT_EQ(misuse("access of unmapped memory"), 3u);
}

TEST_F(CudaDouble, UseAfterFreeIsCaught) {
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  ASSERT_EQ(cudaFree(block), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(block, 0, 1, one_), cudaErrorInvalidValue);
  EXPECT_EQ(misuse("use after free"), 1u);
}

TEST_F(CudaDouble, UseOfAReturnedBlockIsCaughtUntilItIsGivenAgain) {
  Block block;
  lowtide_double_given(block.at(0), kMiB, one_);
  lowtide_double_returned(block.at(0), kMiB);
  EXPECT_EQ(lowtide_double_touch(block.at(kMiB), kMiB, one_), cudaSuccess) << "beside it";
  EXPECT_EQ(misuse("use after free"), 0u);
  lowtide_double_touch(block.at(kMiB - 1), 1, one_);
  EXPECT_EQ(misuse("use after free"), 1u);
  lowtide_double_given(block.at(kMiB / 2), kMiB / 2, one_);
  lowtide_double_touch(block.at(kMiB - 1), 1, one_);
  EXPECT_EQ(misuse("use after free"), 1u);
}

TEST_F(CudaDouble, ReuseOnAnotherStreamWithoutAnEventIsCaught) {
  Block block;
  lowtide_double_touch(block.at(0), kMiB, one_);
  lowtide_double_given(block.at(0), kMiB, one_);
  EXPECT_EQ(misuse("freed while in use"), 0u) << "the same stream";
  lowtide_double_given(block.at(kMiB), kMiB, two_);
  EXPECT_EQ(misuse("freed while in use"), 0u) << "other bytes";
  lowtide_double_given(block.at(kMiB / 2), 512, two_);
  EXPECT_EQ(misuse("freed while in use"), 1u);
  EXPECT_THAT(lowtide_double_first_misuse(nullptr), HasSubstr("not ordered before it by an event"));
}

TEST_F(CudaDouble, AnEventOrdersTheReuse) {
  Block block;
  lowtide_double_touch(block.at(0), kMiB, one_);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  lowtide_double_touch(block.at(kMiB), kMiB, one_);  // after the event
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  lowtide_double_given(block.at(0), kMiB, two_);
  EXPECT_EQ(misuse("freed while in use"), 0u);
  lowtide_double_given(block.at(kMiB), kMiB, two_);
  EXPECT_EQ(misuse("freed while in use"), 1u);
}

TEST_F(CudaDouble, OrderPassesOnFromStreamToStream) {
  Block block;
  cudaStream_t three = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&three, cudaStreamNonBlocking), cudaSuccess);
  lowtide_double_touch(block.at(0), kMiB, one_);
  cudaEventRecord(event_, one_);
  cudaStreamWaitEvent(two_, event_, 0);
  cudaEventRecord(event_, two_);
  cudaStreamWaitEvent(three, event_, 0);
  lowtide_double_given(block.at(0), kMiB, three);
  EXPECT_EQ(misuse("freed while in use"), 0u);
  cudaStreamDestroy(three);
}

TEST_F(CudaDouble, TheHostOrdersTheReuseByQueryOrWait) {
  Block block;
  lowtide_double_touch(block.at(0), kMiB, one_);
  cudaEventRecord(event_, one_);
  ASSERT_EQ(cudaEventQuery(event_), cudaSuccess);
  lowtide_double_given(block.at(0), kMiB, two_);
  lowtide_double_touch(block.at(kMiB), kMiB, one_);
  cudaStreamSynchronize(one_);
  lowtide_double_given(block.at(kMiB), kMiB, two_);
  EXPECT_EQ(misuse("freed while in use"), 0u);
}

TEST_F(CudaDouble, AsyncMemoryFreedInUseIsCaught) {
  void* block = nullptr;
  ASSERT_EQ(cudaMallocAsync(&block, kMiB, one_), cudaSuccess);
  lowtide_double_touch(block, kMiB, one_);
  ASSERT_EQ(cudaFreeAsync(block, two_), cudaSuccess);
  EXPECT_EQ(misuse("freed while in use"), 1u);
  ASSERT_EQ(cudaMallocAsync(&block, kMiB, one_), cudaSuccess);
  lowtide_double_touch(block, kMiB, one_);
  ASSERT_EQ(cudaFreeAsync(block, one_), cudaSuccess);
  EXPECT_EQ(misuse("freed while in use"), 1u) << "stream order is enough";
}

TEST_F(CudaDouble, CudaFreeWaitsForTheDevice) {
  lowtide_double_set_delay(kNever);
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  lowtide_double_touch(block, kMiB, one_);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady);
  ASSERT_EQ(cudaFree(block), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(one_), cudaSuccess);
  EXPECT_EQ(misuse("freed while in use"), 0u);
}

}  // namespace
}  // namespace cuda_double_test
