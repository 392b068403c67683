// Door A under many threads on a few streams, in a process that forks among them, and where the
// device has no more memory at each of many points: torch's own CUDA allocator, decorated, over the
// CUDA double. As device_core_stress_test.cc does with door B.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <optional>
#include <utility>

#include "doubles/cuda/cuda_double_fixture.h"
#include "hooks/torch_cuda_allocator.h"
#include "unit/hooks/device_life.h"

// What torch's CUDA half tells its core when it is loaded; here it is not.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(c10::DeviceIndex));
}  // namespace c10::cuda::_internal

namespace lowtide::hooks {
namespace {

namespace native = c10::cuda::CUDACachingAllocator;

// As tensors do it: blocks of the thread's current stream, record_stream, the block's own deleter.
class DoorLives final : public testing::LifeAllocator {
 public:
  void* allocate(size_t bytes, cudaStream_t stream) override {
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream, 0));
    try {
      return native::get()->allocate(bytes).release_context();
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
  }
  bool free(void* block) override {
    native::get()->raw_deleter()(block);
    return true;
  }
  void use_on(void* block, cudaStream_t stream) override {
    if (forgetful) return;
    c10::DataPtr held(block, block, native::get()->raw_deleter(), {c10::DeviceType::CUDA, 0});
    native::recordStream(held, c10::cuda::getStreamFromExternal(stream, 0));
    (void)held.release_context();
  }
  void trim() override { native::emptyCache(); }

  bool forgetful = false;  // the trap of decorators: no word of other streams
};

class TorchCudaStress : public cuda_double_test::CudaDouble {
 protected:
  static constexpr size_t kMiB = cuda_double_test::kMiB;
  static constexpr size_t kAll = 16 * 1024 * kMiB;  // what the double says a device has

  static void SetUpTestSuite() {
    // The door asks it for torch's version; nothing here needs more of it.
    ASSERT_NE(dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_GLOBAL), nullptr) << dlerror();
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    native::init(c10::cuda::device_count());
  }
  void SetUp() override {
    CudaDouble::SetUp();
    lowtide_double_set_memory(0, kAll);
    native::resetPeakStats(0);
    native::resetAccumulatedStats(0);
    TorchCudaAllocator::install();
    lives_.emplace(allocator_);
  }
  void TearDown() override {
    native::emptyCache();
    EXPECT_EQ(lowtide_double_bytes(0), 0u) << "all segments go back";
    TorchCudaAllocator::uninstall();
    lives_.reset();
    lowtide_double_set_delay(0);
    CudaDouble::TearDown();
  }

  static void expect_that_nothing_lives() {
    native::emptyCache();  // ends what other streams still used
    const DeviceLedgerStats held = TorchCudaAllocator::ledger(0).stats();
    const auto stats = native::getDeviceStats(0);
    EXPECT_EQ(held.live.current, 0);
    EXPECT_EQ(held.active.current, 0);
    EXPECT_EQ(held.active.peak, stats.requested_bytes[0].peak);
    EXPECT_EQ(held.alloc_calls, stats.allocation[0].allocated);
    EXPECT_EQ(held.unknown_frees + held.lost_blocks, 0);
    EXPECT_EQ(stats.allocated_bytes[0].current, 0);
  }

  DoorLives allocator_;
  std::optional<testing::DeviceLives> lives_;
};

TEST_F(TorchCudaStress, ThreadsAndStreamsNeverMeetInOneBlock) {
  lowtide_double_set_delay(30);
  lives_->live_in_threads(testing::stress_operations());
  EXPECT_EQ(lives_->failed, 0);
  expect_that_nothing_lives();
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);

  // Judged by a tenth of that, an allocator that forgets other streams does not pass.
  allocator_.forgetful = true;
  lives_->live_in_threads(testing::stress_operations() / 10);
  EXPECT_GT(misuse("freed while in use"), 0u);
}

TEST_F(TorchCudaStress, UnderALimitTheLimitHolds) {
  lowtide_double_set_delay(30);
  TorchCudaAllocator::set_limit(0, static_cast<int64_t>(128 * kMiB));
  lives_->live_in_threads(testing::stress_operations() / 10);
  EXPECT_LE(lowtide_double_largest_bytes(0), 128 * kMiB);
  EXPECT_GT(lives_->failed, 0);
  EXPECT_EQ(TorchCudaAllocator::stats(0).failures, lives_->failed);
  expect_that_nothing_lives();
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

// In the child torch's own allocator may be locked for ever: only what is ours is asked.
TEST_F(TorchCudaStress, AForkedChildEndsAndTheParentGoesOn) {
  const auto in_child = [] {
    DeviceLedger& ledger = TorchCudaAllocator::ledger(0);
    ledger.reset_peaks();
    return ledger.stats().blocks.current >= 0 && ledger.largest_holders(3).size() <= 3;
  };
  EXPECT_EQ(lives_->fork_rounds(in_child), 0);
  expect_that_nothing_lives();
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

TEST_F(TorchCudaStress, TheDeviceIsFullAtEachOf500Points) {
  constexpr int kOperations = 200;
  lowtide_double_set_delay(20);
  int points = 0;
  for (int point = 0; point < 100; ++point) {
    for (const int operations : {1, 2, 3, 10, kOperations}) {
      // From this operation on, and for so many, the device has nothing left but what it gave.
      const auto before = [&](int operation) {
        if (operation == point) lowtide_double_set_memory(0, lowtide_double_bytes(0));
        if (operation == point + operations) lowtide_double_set_memory(0, kAll);
      };
      lives_->live(static_cast<uint32_t>(point % 10), kOperations, before);
      lowtide_double_set_memory(0, kAll);
      native::emptyCache();
      ASSERT_EQ(lowtide_double_bytes(0), 0u) << "after " << point << ", " << operations;
      ++points;
    }
  }
  EXPECT_EQ(points, 500);
  EXPECT_GT(lives_->failed, 500);
  EXPECT_EQ(TorchCudaAllocator::stats(0).failures, lives_->failed);
  expect_that_nothing_lives();
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

}  // namespace
}  // namespace lowtide::hooks
