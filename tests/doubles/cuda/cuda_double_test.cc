// The double used directly, without torch: each kind of misuse by its name, memory, order, capture.
#include "doubles/cuda/cuda_double.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

// Made by nvcc's host code and by cuBLAS; no header of the toolkit declares them.
extern "C" {
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
int cublasCreate_v2(void** handle);
int cublasSetStream_v2(void* handle, cudaStream_t stream);
int cublasDestroy_v2(void* handle);
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                   const void*, void*, void*, void*, const void*, void*, size_t, cudaStream_t);
}

namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kNever = uint64_t{1} << 40;  // ticks

class CudaDouble : public ::testing::Test {
 protected:
  void SetUp() override {
    lowtide_double_set_delay(0);
    lowtide_double_set_memory(0, 1024 * kMiB);
    lowtide_double_forget_misuse();
    cudaGetLastError();
    ASSERT_EQ(cudaStreamCreateWithFlags(&one_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&two_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    lowtide_double_reset_largest(0);
  }
  void TearDown() override {
    cudaEventDestroy(event_);
    cudaStreamDestroy(one_);
    cudaStreamDestroy(two_);
  }

  // What memory is for most tests: 4 MiB, given back at the end.
  struct Block {
    explicit Block(uint64_t bytes = 4 * kMiB) {
      EXPECT_EQ(cudaMalloc(&address, bytes), cudaSuccess);
    }
    ~Block() { cudaFree(address); }
    char* at(uint64_t offset) const { return static_cast<char*>(address) + offset; }
    void* address = nullptr;
  };

  static uint64_t misuse(const char* kind) {
    EXPECT_EQ(lowtide_double_misuse(nullptr), lowtide_double_misuse(kind))
        << "of another kind: " << lowtide_double_first_misuse(nullptr);
    return lowtide_double_misuse(kind);
  }

  cudaStream_t one_ = nullptr, two_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// --- memory

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

// --- misuse

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

// --- order and time

TEST_F(CudaDouble, WorkCompletesAfterItsDelayAndEventsInStreamOrder) {
  lowtide_double_set_delay(100);
  Block block;
  lowtide_double_touch(block.address, 1, one_);
  cudaEventRecord(event_, one_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  lowtide_double_advance(50);
  lowtide_double_touch(block.address, 1, one_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  lowtide_double_advance(50);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady) << "the second piece";
  EXPECT_EQ(cudaStreamQuery(two_), cudaSuccess) << "another stream";
  EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(one_), cudaSuccess);
}

TEST_F(CudaDouble, AStreamThatWaitsIsNotDoneBeforeWhatItWaitsFor) {
  lowtide_double_set_delay(kNever);
  Block block;
  lowtide_double_touch(block.address, 1, one_);
  cudaEventRecord(event_, one_);
  lowtide_double_set_delay(0);
  cudaStreamWaitEvent(two_, event_, 0);
  lowtide_double_touch(block.address, 1, two_);
  EXPECT_EQ(cudaStreamQuery(two_), cudaErrorNotReady);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(two_), cudaSuccess);
}

TEST_F(CudaDouble, DeadHandlesAreRefused) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  cudaStreamDestroy(stream);
  cudaEventDestroy(event);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, one_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
}

// --- capture

TEST_F(CudaDouble, CapturedWorkIsDoneAtEachLaunch) {
  Block block;
  std::memset(block.address, 1, 16);
  const uint64_t before = lowtide_double_launches();
  ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal), cudaSuccess);
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  EXPECT_EQ(cudaStreamGetCaptureInfo(one_, &status, &id, nullptr, nullptr, nullptr, nullptr),
            cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(cudaMemsetAsync(block.address, 5, 16, one_), cudaSuccess);
  // A second stream joins through an event.
  cudaEventRecord(event_, one_);
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(two_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  lowtide_double_touch(block.address, 16, two_);
  cudaEventRecord(event_, two_);
  cudaStreamWaitEvent(one_, event_, 0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  EXPECT_EQ(*block.at(0), 1);
  EXPECT_EQ(lowtide_double_launches(), before);
  size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2u);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  ASSERT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
  EXPECT_EQ(*block.at(15), 5);
  LowtideDoubleLaunch launches[2];
  ASSERT_EQ(lowtide_double_read_launches(before, launches, 2), 2u);
  EXPECT_EQ(launches[0].correlation, launches[1].correlation);
  cudaGraphExecDestroy(executable);
  EXPECT_EQ(cudaStreamIsCapturing(two_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(CudaDouble, AGraphThatOutlivesItsMemoryIsCaught) {
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeRelaxed);
  lowtide_double_touch(block, kMiB, one_);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(one_, &graph);
  cudaGraphExec_t executable = nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
  cudaFree(block);
  EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaErrorInvalidValue);
  EXPECT_EQ(misuse("use after free"), 1u);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CudaDouble, AllocationDuringACaptureNeedsTheRelaxedMode) {
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  EXPECT_EQ(cudaFree(block), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(cudaMalloc(&block, kMiB), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
}

// --- virtual memory management, by the door that torch takes

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

// --- launches, cuBLAS, what is missing

TEST_F(CudaDouble, KernelsAreLoggedByNameStreamAndThread) {
  static const char stub = 0;
  __cudaRegisterFunction(nullptr, &stub, nullptr, "_Z6kernelv", 0, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  const uint64_t before = lowtide_double_launches();
  const uint64_t calls = lowtide_double_calls("cudaLaunchKernel");
  ASSERT_EQ(cudaLaunchKernel(&stub, {}, {}, nullptr, 0, one_), cudaSuccess);
  std::thread([&] { cudaLaunchKernel(&stub, {}, {}, nullptr, 0, two_); }).join();
  EXPECT_EQ(lowtide_double_calls("cudaLaunchKernel"), calls + 2);
  LowtideDoubleLaunch launches[3];
  ASSERT_EQ(lowtide_double_read_launches(before, launches, 3), 2u);
  EXPECT_STREQ(launches[0].name, "_Z6kernelv");
  EXPECT_EQ(launches[0].work, kLowtideDoubleKernel);
  EXPECT_EQ(launches[1].sequence, launches[0].sequence + 1);
  EXPECT_NE(launches[0].stream, launches[1].stream);
  EXPECT_NE(launches[0].thread, launches[1].thread);
  EXPECT_NE(launches[0].correlation, launches[1].correlation);
  int unknown = 0;
  EXPECT_EQ(cudaLaunchKernel(&unknown, {}, {}, nullptr, 0, one_), cudaErrorInvalidDeviceFunction);
}

TEST_F(CudaDouble, CublasCallsAreLaunches) {
  const uint64_t before = lowtide_double_launches();
  EXPECT_EQ(cublasLtMatmul(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                           nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, one_),
            0);
  LowtideDoubleLaunch launch;
  ASSERT_EQ(lowtide_double_read_launches(before, &launch, 1), 1u);
  EXPECT_STREQ(launch.name, "cublasLtMatmul");
  EXPECT_EQ(launch.work, kLowtideDoubleBlas);
  void* handle = nullptr;
  ASSERT_EQ(cublasCreate_v2(&handle), 0);
  EXPECT_EQ(cublasSetStream_v2(handle, two_), 0);
  EXPECT_EQ(cublasDestroy_v2(handle), 0);
  EXPECT_NE(cublasSetStream_v2(handle, two_), 0) << "a dead handle";
}

TEST_F(CudaDouble, WhatIsMissingIsNamedOnceAndFails) {
  const uint64_t before = lowtide_double_missing();
  ::testing::internal::CaptureStderr();
  int value = 0;
  const auto unknown = static_cast<cudaDeviceAttr>(9999);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, unknown, 0), cudaErrorNotSupported);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, unknown, 0), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "CUDA double: cudaDeviceGetAttribute of 9999 is not modelled; the call fails as "
            "\"not supported\"\n");
  EXPECT_EQ(lowtide_double_missing(), before + 2);
}

TEST_F(CudaDouble, ThreadsMayUseItTogether) {
  const uint64_t before = lowtide_double_bytes(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      for (int round = 0; round < 200; ++round) {
        void* block = nullptr;
        EXPECT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
        EXPECT_EQ(cudaMemsetAsync(block, round, 64, stream), cudaSuccess);
        EXPECT_EQ(cudaFree(block), cudaSuccess);
      }
      cudaStreamDestroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lowtide_double_bytes(0), before);
  EXPECT_EQ(lowtide_double_misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

}  // namespace
