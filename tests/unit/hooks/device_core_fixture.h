// What the tests of the GPU's core share: streams of the CUDA double, a core, and the double told
// of each block that is handed out or taken back, so that it can judge.
#pragma once

#include <memory>
#include <utility>

#include "doubles/cuda/cuda_double_fixture.h"
#include "hooks/backend_cuda.h"
#include "hooks/device_core.h"

namespace lowtide::hooks {

class DeviceCoreTest : public cuda_double_test::CudaDouble {
 protected:
  static constexpr size_t kMiB = cuda_double_test::kMiB;
  static constexpr uint64_t kNever = cuda_double_test::kNever;

  void SetUp() override {
    CudaDouble::SetUp();
    core_ = std::make_unique<DeviceCore>(make_cuda_backend(0));
    held_before_ = lowtide_double_bytes(0);
  }
  void TearDown() override {
    core_.reset();
    EXPECT_EQ(lowtide_double_bytes(0), held_before_) << "all segments go back";
    EXPECT_EQ(lowtide_double_misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
    lowtide_double_set_delay(0);
    CudaDouble::TearDown();
  }

  DeviceCore& core() { return *core_; }
  // A block that the stream's work uses.
  void* allocate(size_t bytes, cudaStream_t stream) {
    void* const block = core_->allocate(bytes, stream);
    if (block == nullptr) return nullptr;
    lowtide_double_given(block, bytes, stream);
    lowtide_double_touch(block, bytes, stream);
    return block;
  }
  void free(void* block) {
    lowtide_double_returned(block, core_->requested_size(block));
    EXPECT_TRUE(core_->free(block));
  }
  // Work of another stream, as record_stream announces it.
  void use(void* block, cudaStream_t stream) {
    lowtide_double_touch(block, core_->requested_size(block), stream);
    EXPECT_TRUE(core_->use_on(block, stream));
  }
  static uint64_t events() { return lowtide_double_calls("cudaEventRecord"); }

  std::unique_ptr<DeviceCore> core_;
  uint64_t held_before_ = 0;
};

}  // namespace lowtide::hooks
