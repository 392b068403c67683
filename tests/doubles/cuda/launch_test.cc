// The launch log, cuBLAS, what is missing, and threads.
#include <thread>
#include <vector>

#include "doubles/cuda/cuda_double_fixture.h"

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

namespace cuda_double_test {
namespace {

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

TEST_F(CudaDouble, AModulesKernelsGoWithIt) {
  const char ptx[] = ".version 8.0";
  CUmodule module = nullptr, none = nullptr;
  EXPECT_EQ(cuModuleLoadData(&none, "something else"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuModuleLoad(&none, "/nowhere.cubin"), CUDA_ERROR_FILE_NOT_FOUND);
  ASSERT_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, module, "made_later"), CUDA_SUCCESS);
  const uint64_t before = lowtide_double_launches();
  const auto start = [&] {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, one_, nullptr, nullptr);
  };
  EXPECT_EQ(start(), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(start(), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE) << "twice";
  EXPECT_EQ(cuModuleGetFunction(&function, module, "made_later"), CUDA_ERROR_INVALID_HANDLE);
  LowtideDoubleLaunch launch;
  ASSERT_EQ(lowtide_double_read_launches(before, &launch, 1), 1u);
  EXPECT_STREQ(launch.name, "made_later");
}

TEST_F(CudaDouble, WhatIsMissingIsNamedOnceAndFails) {
  const uint64_t before = lowtide_double_missing();
  ::testing::internal::CaptureStderr();
  int value = 0;
  constexpr cudaDeviceAttr unknown = cudaDevAttrMaxTexture1DWidth;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, unknown, 0), cudaErrorNotSupported);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, unknown, 0), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "CUDA double: cudaDeviceGetAttribute of 21 is not modelled; the call fails as "
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
}  // namespace cuda_double_test
