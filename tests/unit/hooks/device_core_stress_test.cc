// Door B's core under many threads on a few streams, and in a process that forks among them.
#include <optional>
#include <string>

#include "unit/hooks/device_core_fixture.h"
#include "unit/hooks/device_life.h"

namespace lowtide::hooks {
namespace {

using testing::stress_operations;

class CoreLives final : public testing::LifeAllocator {
 public:
  explicit CoreLives(DeviceCore& core) : core_(core) {}
  void* allocate(size_t bytes, cudaStream_t stream) override {
    return core_.allocate(bytes, stream);
  }
  bool free(void* block) override { return core_.free(block); }
  void use_on(void* block, cudaStream_t stream) override { core_.use_on(block, stream); }
  void trim() override { core_.trim(); }

 private:
  DeviceCore& core_;
};

class DeviceCoreStress : public DeviceCoreTest {
 protected:
  void SetUp() override {
    DeviceCoreTest::SetUp();
    allocator_.emplace(core());
    lives_.emplace(*allocator_);
  }
  void TearDown() override {
    DeviceCoreTest::TearDown();
    lives_.reset();
  }

  std::optional<CoreLives> allocator_;
  std::optional<testing::DeviceLives> lives_;
};

TEST_F(DeviceCoreStress, ThreadsAndStreamsNeverMeetInOneBlock) {
  lowtide_double_set_delay(30);
  lowtide_double_set_memory(0, 4096 * kMiB);
  lives_->live_in_threads(stress_operations());
  core().trim();
  const DeviceStats stats = core().stats();
  EXPECT_EQ(lives_->refused, 0);
  EXPECT_EQ(lives_->failed, 0);
  EXPECT_EQ(stats.requested.current, 0);
  EXPECT_EQ(stats.active_bytes.current, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.reserved.current, 0);
  EXPECT_EQ(core().invalid_frees(), 0);
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

TEST_F(DeviceCoreStress, UnderALimitTheLadderRunsAndTheLimitHolds) {
  lowtide_double_set_delay(30);
  core().set_limit(static_cast<int64_t>(128 * kMiB));
  lives_->live_in_threads(stress_operations() / 4);
  const DeviceStats stats = core().stats();
  EXPECT_LE(stats.reserved.peak, static_cast<int64_t>(128 * kMiB));
  EXPECT_LE(lowtide_double_largest_bytes(0) - held_before_, 128 * kMiB);
  EXPECT_GT(stats.alloc_retries, 0);
  EXPECT_GT(stats.stream_waits, 0);
  EXPECT_EQ(stats.failures, lives_->failed);
  EXPECT_EQ(stats.requested.current, 0);
}

// The child cannot use the GPU, but frees what it inherited.
TEST_F(DeviceCoreStress, AForkedChildEndsAndTheParentGoesOn) {
  void* const inherited = allocate(3 * kMiB, one_);
  const auto in_child = [&] {
    return core().allocate(kMiB, one_) == nullptr &&
           core().shortage(kMiB).find("spawn") != std::string::npos && core().free(inherited) &&
           !core().free(inherited) && core().trim() == 0;
  };
  EXPECT_EQ(lives_->fork_rounds(in_child), 0);
  free(inherited);
  EXPECT_EQ(core().stats().requested.current, 0);
}

}  // namespace
}  // namespace lowtide::hooks
