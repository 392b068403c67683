// The GPU's core beyond the rules of every core: layout, streams, events, captures and pools.
#include <vector>

#include "unit/hooks/device_core_fixture.h"

namespace lowtide::hooks {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(DeviceCoreTest, ReservedIsWhatTheDeviceGave) {
  std::vector<void*> blocks;
  for (const size_t bytes :
       {size_t{1}, size_t{513}, kMiB, kMiB + 1, 9 * kMiB, 10 * kMiB, 31 * kMiB}) {
    blocks.push_back(allocate(bytes, one_));
    EXPECT_EQ(core().stats().reserved.current,
              static_cast<int64_t>(lowtide_double_bytes(0) - held_before_))
        << bytes;
  }
  // A small segment, one of 20 MiB for both medium blocks, and two of their own.
  const DeviceStats stats = core().stats();
  EXPECT_EQ(stats.small_pool.reserved.current, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(stats.large_pool.reserved.current, static_cast<int64_t>((20 + 10 + 32) * kMiB));
  EXPECT_EQ(stats.segments.current, 4);
  EXPECT_EQ(stats.segment_acquires, 4);
  for (void* block : blocks) free(block);
  EXPECT_EQ(core().stats().cached, core().stats().reserved.current);
}

TEST_F(DeviceCoreTest, FreeNeighboursBecomeOneAndPoolsAddUp) {
  void* const a = allocate(3 * kMiB, one_);
  void* const b = allocate(4 * kMiB, one_);
  void* const c = allocate(5 * kMiB, one_);
  EXPECT_EQ(core().stats().inactive_split_bytes.current, static_cast<int64_t>(8 * kMiB));
  free(a);
  free(c);
  EXPECT_EQ(core().stats().inactive_split.current, 2);
  free(b);
  DeviceStats stats = core().stats();
  EXPECT_EQ(stats.inactive_split.current, 0);
  EXPECT_EQ(stats.cached, static_cast<int64_t>(20 * kMiB));
  EXPECT_EQ(allocate(9 * kMiB, one_), a) << "a hole that only all three together make";
  free(a);
  for (int i = 0; i < 40; ++i) free(allocate(1000 * (i + 1), i % 2 == 0 ? one_ : two_));
  stats = core().stats();
  EXPECT_EQ(stats.rounded.allocated,
            stats.small_pool.rounded.allocated + stats.large_pool.rounded.allocated);
  EXPECT_EQ(stats.rounded.allocated, stats.rounded.freed);
  EXPECT_EQ(stats.requested.current, 0);
  EXPECT_EQ(stats.active_bytes.current, 0);
}

TEST_F(DeviceCoreTest, AFreedBlockIsReusedAtOnceButOnlyOnItsStream) {
  lowtide_double_set_delay(kNever);
  const uint64_t before = events();
  void* const block = allocate(3 * kMiB, one_);
  free(block);
  void* const other = allocate(3 * kMiB, two_);
  EXPECT_NE(other, block);
  EXPECT_EQ(allocate(3 * kMiB, one_), block);
  free(other);
  free(block);
  EXPECT_EQ(core().stats().waiting, 0);
  EXPECT_EQ(events(), before) << "no event was needed";
}

TEST_F(DeviceCoreTest, ABlockUsedOnAnotherStreamComesBackAfterItsEvent) {
  lowtide_double_set_delay(kNever);
  void* const block = allocate(3 * kMiB, one_);
  use(block, two_);
  core().use_on(block, two_);  // said twice, one event
  core().use_on(block, one_);  // its own stream, none
  const uint64_t before = events();
  free(block);
  EXPECT_EQ(events() - before, 1u);
  EXPECT_EQ(core().stats().waiting, static_cast<int64_t>(3 * kMiB));
  EXPECT_EQ(core().stats().blocks.current, 0);
  EXPECT_EQ(core().stats().active.current, 1);
  lowtide_double_set_delay(0);
  void* const early = allocate(3 * kMiB, one_);
  EXPECT_NE(early, block);
  lowtide_double_advance(kNever);
  EXPECT_EQ(allocate(3 * kMiB, one_), block);
  EXPECT_EQ(core().stats().waiting, 0);
  free(early);
  free(block);
}

TEST_F(DeviceCoreTest, ABlockWaitsForAllStreamsThatUseIt) {
  cudaStream_t three = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&three, cudaStreamNonBlocking), cudaSuccess);
  void* const block = allocate(3 * kMiB, one_);
  use(block, two_);
  lowtide_double_set_delay(kNever);
  use(block, three);
  free(block);
  lowtide_double_set_delay(0);
  void* const early = allocate(3 * kMiB, one_);
  EXPECT_NE(early, block) << "two of the streams are done, the third is not";
  lowtide_double_advance(kNever);
  EXPECT_EQ(allocate(3 * kMiB, one_), block);
  free(early);
  free(block);
  cudaStreamDestroy(three);
}

TEST_F(DeviceCoreTest, EventsAreUsedAgain) {
  const uint64_t before = lowtide_double_calls("cudaEventCreateWithFlags");
  for (int i = 0; i < 50; ++i) {
    void* const block = allocate(kMiB, one_);
    use(block, two_);
    free(block);
  }
  EXPECT_LE(lowtide_double_calls("cudaEventCreateWithFlags") - before, 2u);
}

TEST_F(DeviceCoreTest, AMissWaitsForFreedBlocksBeforeItFails) {
  core().set_limit(static_cast<int64_t>(8 * kMiB));
  void* const block = allocate(6 * kMiB, one_);
  use(block, two_);
  lowtide_double_set_delay(kNever);
  use(block, two_);
  free(block);
  void* const next = allocate(6 * kMiB, one_);
  EXPECT_EQ(next, block);
  EXPECT_EQ(core().stats().stream_waits, 1);
  EXPECT_EQ(core().stats().failures, 0);
  free(next);
}

TEST_F(DeviceCoreTest, OneStreamsCacheMakesRoomForAnother) {
  core().set_limit(static_cast<int64_t>(8 * kMiB));
  free(allocate(6 * kMiB, one_));
  void* const block = allocate(8 * kMiB, two_);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(core().stats().alloc_retries, 1);
  EXPECT_LE(core().stats().reserved.peak, static_cast<int64_t>(8 * kMiB));
  free(block);
}

TEST_F(DeviceCoreTest, TheDevicesEndIsMetLikeALimit) {
  lowtide_double_set_memory(0, lowtide_double_bytes(0) + 24 * kMiB);
  free(allocate(20 * kMiB, one_));
  void* const block = allocate(22 * kMiB, one_);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(core().allocate(4 * kMiB, one_), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "no error is left for others to find";
  // 20 MiB for a medium request do not fit, its own size does.
  void* const small = allocate(2 * kMiB, one_);
  EXPECT_NE(small, nullptr);
  const std::string text = core().shortage(4 * kMiB);
  EXPECT_THAT(text, HasSubstr("cannot allocate 4.0 MiB on the GPU."));
  EXPECT_THAT(text, HasSubstr("live 24.0 MiB in 2 blocks"));
  EXPECT_THAT(text, HasSubstr("Largest holders: 1 x 22.0 MiB, 1 x 2.0 MiB."));
  free(block);
  free(small);
}

TEST_F(DeviceCoreTest, TheAccountNamesOpsAndTheLimit) {
  core().set_limit(static_cast<int64_t>(16 * kMiB));
  std::vector<void*> blocks;
  {
    const ScopedOp op(7);
    for (int i = 0; i < 3; ++i) blocks.push_back(allocate(4 * kMiB, one_));
  }
  blocks.push_back(allocate(2 * kMiB, one_));
  EXPECT_EQ(core().allocate(64 * kMiB, one_), nullptr);
  const std::string text = core().shortage(64 * kMiB);
  EXPECT_THAT(text, HasSubstr("cannot allocate 64.0 MiB on the GPU within the limit of 16.0 MiB"));
  EXPECT_THAT(text, HasSubstr("3 x 4.0 MiB (op 7), 1 x 2.0 MiB."));
  EXPECT_THAT(text, HasSubstr("Fix: a larger limit"));
  const std::vector<Holder> holders = core().largest_holders(1);
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].op, 7);
  EXPECT_EQ(holders[0].bytes(), static_cast<int64_t>(12 * kMiB));
  for (void* block : blocks) free(block);
}

TEST_F(DeviceCoreTest, ForeignPointersNeverReachTheDevice) {
  int host = 0;
  void* foreign = nullptr;
  ASSERT_EQ(cudaMalloc(&foreign, kMiB), cudaSuccess);
  void* const block = allocate(kMiB, one_);
  const uint64_t frees = lowtide_double_calls("cudaFree");
  for (void* pointer :
       {static_cast<void*>(&host), foreign, static_cast<void*>(static_cast<char*>(block) + 512)}) {
    EXPECT_FALSE(core().free(pointer));
    EXPECT_FALSE(core().use_on(pointer, two_));
  }
  free(block);
  EXPECT_FALSE(core().free(block));
  EXPECT_EQ(core().invalid_frees(), 7);
  EXPECT_EQ(lowtide_double_calls("cudaFree"), frees);
  cudaFree(foreign);
}

TEST_F(DeviceCoreTest, ABlockKnowsItsSegment) {
  void* const first = allocate(2 * kMiB, one_);
  void* const second = allocate(3 * kMiB, one_);
  EXPECT_EQ(core().segment_of(second).base, first);
  EXPECT_EQ(core().segment_of(second).bytes, 20 * kMiB);
  EXPECT_EQ(core().segment_of(&core()).bytes, 0u);
  free(first);
  free(second);
}

TEST_F(DeviceCoreTest, APoolsMemoryIsNobodyElses) {
  const PoolId id{0, 1};
  const auto on_one = [this](DeviceStream stream) { return stream == one_; };
  free(allocate(3 * kMiB, one_));
  const int64_t common = core().stats().reserved.current;
  ASSERT_TRUE(core().begin_pool(id, on_one));
  void* const inside = allocate(3 * kMiB, one_);
  EXPECT_GT(core().stats().reserved.current, common) << "not out of the common cache";
  free(inside);
  EXPECT_EQ(allocate(3 * kMiB, one_), inside);
  void* const beside = allocate(3 * kMiB, two_);
  free(beside);
  free(inside);
  core().end_pool(id);
  // A graph may still write to it: neither handed out nor given back.
  void* const outside = allocate(3 * kMiB, one_);
  EXPECT_NE(outside, inside);
  free(outside);
  core().trim();
  EXPECT_EQ(core().stats().reserved.current, static_cast<int64_t>(20 * kMiB));
  EXPECT_TRUE(core().release_pool(id));
  core().trim();
  EXPECT_EQ(core().stats().reserved.current, 0);
  EXPECT_FALSE(core().release_pool(id));
}

TEST_F(DeviceCoreTest, APoolLivesUntilItsLastRelease) {
  const PoolId id{0, 2};
  const auto all = [](DeviceStream) { return true; };
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(core().begin_pool(id, all));
    free(allocate(kMiB, one_));
    core().end_pool(id);
  }
  EXPECT_EQ(core().stats().segment_acquires, 1) << "the second use has the first one's memory";
  EXPECT_TRUE(core().release_pool(id));
  core().trim();
  EXPECT_EQ(core().stats().segments.current, 1);
  EXPECT_TRUE(core().release_pool(id));
  core().trim();
  EXPECT_EQ(core().stats().segments.current, 0);
}

TEST_F(DeviceCoreTest, APoolReleasedBeforeItsEndStaysUntilThen) {
  const PoolId id{0, 5};
  ASSERT_TRUE(core().begin_pool(id, [](DeviceStream) { return true; }));
  EXPECT_TRUE(core().release_pool(id));
  void* const block = allocate(kMiB, one_);
  EXPECT_NE(block, nullptr);
  free(block);
  core().trim();
  EXPECT_EQ(core().stats().reserved.current, 0);
  free(allocate(kMiB, one_));
  core().end_pool(id);
}

// The handler runs without the lock, and takes the pool away that the request was for.
TEST_F(DeviceCoreTest, APoolMayGoWhileTheHandlerRuns) {
  class Releasing final : public PressureHandler {
   public:
    explicit Releasing(DeviceCore& core) : core_(core) {}
    int64_t free_memory(int64_t /*need*/, int64_t /*request*/) noexcept override {
      core_.end_pool({0, 6});
      core_.release_pool({0, 6});
      core_.set_limit(DeviceCore::kNoLimit);
      return 1;
    }

   private:
    DeviceCore& core_;
  };
  Releasing handler(core());
  core().set_pressure_handler(&handler);
  core().set_limit(static_cast<int64_t>(4 * kMiB));
  void* const kept = allocate(2 * kMiB, two_);
  ASSERT_TRUE(core().begin_pool({0, 6}, [this](DeviceStream stream) { return stream == one_; }));
  void* const block = allocate(4 * kMiB, one_);
  EXPECT_NE(block, nullptr);
  core().set_pressure_handler(nullptr);
  free(kept);
  free(block);
}

TEST_F(DeviceCoreTest, AFilterThatThrowsAcceptsNothing) {
  ASSERT_TRUE(core().begin_pool({0, 3}, [](DeviceStream) -> bool { throw 1; }));
  void* const block = allocate(kMiB, one_);
  EXPECT_NE(block, nullptr);
  free(block);
  core().end_pool({0, 3});
  core().release_pool({0, 3});
}

TEST_F(DeviceCoreTest, ACaptureIsLeftAloneAndItsEventsComeAfterIt) {
  void* const used = allocate(3 * kMiB, one_);
  free(allocate(40 * kMiB, one_));  // cached: could be given back
  const uint64_t frees = lowtide_double_calls("cudaFree");
  ASSERT_EQ(cudaStreamBeginCapture(two_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_TRUE(core().begin_pool({0, 4}, [this](DeviceStream stream) { return stream == two_; }));
  void* const captured = core().allocate(kMiB, two_);  // a cudaMalloc during the capture
  EXPECT_NE(captured, nullptr);
  core().use_on(used, two_);
  const uint64_t before = events();
  free(used);
  EXPECT_EQ(events(), before) << "no event stands behind work that is being captured";
  void* const early = allocate(3 * kMiB, one_);
  EXPECT_NE(early, used);
  core().set_limit(core().stats().reserved.current);
  EXPECT_EQ(core().allocate(30 * kMiB, two_), nullptr) << "nothing is given back for it";
  EXPECT_EQ(lowtide_double_calls("cudaFree"), frees);
  core().free(captured);
  core().end_pool({0, 4});
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(two_, &graph), cudaSuccess) << "still valid";
  EXPECT_EQ(allocate(3 * kMiB, one_), used);
  EXPECT_EQ(events(), before + 1);
  cudaGraphDestroy(graph);
  core().release_pool({0, 4});
  free(early);
  free(used);
}

TEST_F(DeviceCoreTest, AStreamThatIsGoneIsWaitedForByTheDevice) {
  cudaStream_t brief = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking), cudaSuccess);
  void* const block = allocate(3 * kMiB, one_);
  use(block, brief);
  cudaStreamDestroy(brief);
  cudaGetLastError();
  lowtide_double_returned(block, 3 * kMiB);
  core().free(block);
  EXPECT_EQ(core().stats().waiting, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(DeviceCoreTest, ABackendSaysWhyThereIsNone) {
  std::string why_not;
  EXPECT_EQ(make_cuda_backend(17, &why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("no CUDA device 17: this machine has 1"));
  EXPECT_THAT(why_not, Not(HasSubstr("libcudart")));
}

}  // namespace
}  // namespace lowtide::hooks
