// Virtual memory management, by the door that torch takes.
#include "doubles/cuda/cuda_double_fixture.h"

namespace cuda_double_test {
namespace {

template <typename Function>
Function* driver(const char* name) {
  void* result = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &result, 12000, 0, &status), cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<Function*>(result);
}

class CudaDoubleVmm : public CudaDouble {
 protected:
  CUmemGenericAllocationHandle create(uint64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    EXPECT_EQ(create_(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  void map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    EXPECT_EQ(map_(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(access_(address, bytes, &access, 1), CUDA_SUCCESS);
  }

  decltype(cuMemCreate)* create_ = driver<decltype(cuMemCreate)>("cuMemCreate");
  decltype(cuMemMap)* map_ = driver<decltype(cuMemMap)>("cuMemMap");
  decltype(cuMemUnmap)* unmap_ = driver<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(cuMemSetAccess)* access_ = driver<decltype(cuMemSetAccess)>("cuMemSetAccess");
  decltype(cuMemRelease)* release_ = driver<decltype(cuMemRelease)>("cuMemRelease");
  decltype(cuMemAddressReserve)* reserve_ =
      driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(cuMemAddressFree)* free_ = driver<decltype(cuMemAddressFree)>("cuMemAddressFree");
};

TEST_F(CudaDoubleVmm, HandlesCountUntilReleasedAndUnmapped) {
  const uint64_t before = lowtide_double_bytes(0);
  CUdeviceptr range = 0;
  ASSERT_EQ(reserve_(&range, 64 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(lowtide_double_bytes(0), before) << "addresses are no memory";
  const auto handle = create(2 * kMiB);
  EXPECT_EQ(lowtide_double_bytes(0), before + 2 * kMiB);
  map(range, 2 * kMiB, handle);
  EXPECT_EQ(release_(handle), CUDA_SUCCESS);
  EXPECT_EQ(lowtide_double_bytes(0), before + 2 * kMiB) << "still mapped";
  EXPECT_EQ(unmap_(range, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(lowtide_double_bytes(0), before);
  EXPECT_EQ(free_(range, 64 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(release_(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(misuse("double free"), 1u);
}

TEST_F(CudaDoubleVmm, BytesFollowTheHandleToAnotherAddress) {
  CUdeviceptr range = 0;
  ASSERT_EQ(reserve_(&range, 8 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  const auto handle = create(2 * kMiB), other = create(2 * kMiB);
  map(range, 2 * kMiB, handle);
  map(range + 2 * kMiB, 2 * kMiB, other);
  auto* const address = reinterpret_cast<void*>(range);
  ASSERT_EQ(cudaMemset(address, 9, 4 * kMiB), cudaSuccess) << "over both mappings";
  EXPECT_EQ(unmap_(range, 4 * kMiB), CUDA_SUCCESS) << "both at once";
  EXPECT_EQ(cudaMemset(address, 9, 1), cudaErrorInvalidValue);
  EXPECT_EQ(misuse("use after free"), 1u);
  map(range + 4 * kMiB, 2 * kMiB, handle);
  char value = 0;
  cudaMemcpy(&value, reinterpret_cast<void*>(range + 6 * kMiB - 1), 1, cudaMemcpyDeviceToHost);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(unmap_(range + 4 * kMiB, 2 * kMiB), CUDA_SUCCESS);
  release_(handle);
  release_(other);
  EXPECT_EQ(free_(range, 8 * kMiB), CUDA_SUCCESS);
}

TEST_F(CudaDoubleVmm, MappedMemoryNeedsAccessAndAnIdleDeviceToGo) {
  CUdeviceptr range = 0;
  ASSERT_EQ(reserve_(&range, 2 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  const auto handle = create(2 * kMiB);
  EXPECT_EQ(map_(range, 2 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  auto* const address = reinterpret_cast<void*>(range);
  EXPECT_EQ(lowtide_double_touch(address, 1, one_), cudaErrorInvalidValue) << "no access yet";
  EXPECT_EQ(misuse("access of unmapped memory"), 1u);
  lowtide_double_forget_misuse();
  EXPECT_EQ(unmap_(range, 2 * kMiB), CUDA_SUCCESS);
  map(range, 2 * kMiB, handle);
  EXPECT_EQ(lowtide_double_touch(address, 1, one_), cudaSuccess);
  EXPECT_EQ(unmap_(range, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(misuse("freed while in use"), 1u) << "nobody waited for the stream";
  release_(handle);
  EXPECT_EQ(free_(range, 2 * kMiB), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cuda_double_test
