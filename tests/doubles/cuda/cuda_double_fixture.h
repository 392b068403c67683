// The fixture of the double's own tests: two streams, an event, no delay and a clean record.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "doubles/cuda/cuda_double.h"

namespace cuda_double_test {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kNever = uint64_t{1} << 40;  // ticks

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

}  // namespace cuda_double_test
