// The device and the host run out of memory at each of many points: nothing is lost, nothing handed
// out twice, and the core works afterwards.
#include <climits>
#include <cstdlib>
#include <new>
#include <random>
#include <utility>

#include "unit/hooks/device_core_fixture.h"

namespace {

// Host allocations of this thread until one fails; negative: none will.
thread_local int64_t until_host_failure = -1;

}  // namespace

// Not inlined: the compiler would take what is within for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (until_host_failure == 0) throw std::bad_alloc();
  if (until_host_failure > 0) --until_host_failure;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (until_host_failure == 0) return nullptr;
  if (until_host_failure > 0) --until_host_failure;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lowtide::hooks {
namespace {

// While it lives, host allocations do not fail: the double is not under test.
class Shelter {
 public:
  Shelter() = default;
  ~Shelter() { until_host_failure = kept_; }
  Shelter(const Shelter&) = delete;
  Shelter& operator=(const Shelter&) = delete;

 private:
  const int64_t kept_ = std::exchange(until_host_failure, -1);
};

// Another backend that fails at one of its calls for memory or events, and at a few after it.
class FailingBackend final : public DeviceBackend {
 public:
  FailingBackend(std::unique_ptr<DeviceBackend> real, int good_calls, int bad_calls,
                 const char* trouble = nullptr)
      : real_(std::move(real)), good_(good_calls), bad_(bad_calls), trouble_(trouble) {}

  [[nodiscard]] const char* trouble() const noexcept override { return trouble_; }

  void* acquire(size_t bytes) noexcept override {
    const Shelter shelter;
    return fails() ? nullptr : real_->acquire(bytes);
  }
  void give_back(void* base, size_t bytes) noexcept override {
    const Shelter shelter;
    real_->give_back(base, bytes);
  }
  Recorded record(DeviceStream stream, DeviceEvent& event) noexcept override {
    const Shelter shelter;
    return fails() ? Recorded::failed : real_->record(stream, event);
  }
  bool complete(DeviceEvent event) noexcept override {
    const Shelter shelter;
    return real_->complete(event);
  }
  void wait(DeviceEvent event) noexcept override {
    const Shelter shelter;
    real_->wait(event);
  }
  void recycle(DeviceEvent event) noexcept override { real_->recycle(event); }
  void wait_for_stream(DeviceStream stream) noexcept override {
    const Shelter shelter;
    real_->wait_for_stream(stream);
  }
  void wait_for_device() noexcept override {
    const Shelter shelter;
    real_->wait_for_device();
  }
  bool capturing(DeviceStream stream) noexcept override {
    const Shelter shelter;
    return real_->capturing(stream);
  }
  DeviceMemory memory() noexcept override { return real_->memory(); }
  [[nodiscard]] const char* name() const noexcept override { return "failing"; }

 private:
  bool fails() noexcept { return good_-- <= 0 && bad_-- > 0; }

  const std::unique_ptr<DeviceBackend> real_;
  int good_;
  int bad_;
  const char* const trouble_;
};

class DeviceCoreFailures : public DeviceCoreTest {
 protected:
  // A life of 400 operations; how many allocations failed. `host_failure`: in each operation the
  // host allocation after so many fails; -1: none does.
  int live(DeviceCore& core, uint32_t seed, int64_t host_failure = -1) {
    std::mt19937 random(seed);
    std::vector<std::pair<void*, size_t>> blocks;
    int failed = 0;
    for (int i = 0; i < 400; ++i) {
      const cudaStream_t stream = random() % 2 == 0 ? one_ : two_;
      if (blocks.size() < 20 && (blocks.empty() || random() % 2 == 0)) {
        const size_t bytes = 1 + random() % (random() % 2 == 0 ? 3 * kMiB : 5000);
        until_host_failure = host_failure;
        void* const address = core.allocate(bytes, stream);
        until_host_failure = -1;
        if (address == nullptr) {
          ++failed;
          continue;
        }
        lowtide_double_given(address, bytes, stream);
        lowtide_double_touch(address, bytes, stream);
        blocks.emplace_back(address, bytes);
        continue;
      }
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto [address, bytes] = blocks.back();
      if (random() % 3 == 0) {
        lowtide_double_touch(address, bytes, two_);
        until_host_failure = host_failure;
        core.use_on(address, two_);
        until_host_failure = -1;
      }
      blocks.pop_back();
      lowtide_double_returned(address, bytes);
      until_host_failure = host_failure;
      EXPECT_TRUE(core.free(address));
      until_host_failure = -1;
    }
    for (const auto& [address, bytes] : blocks) {
      lowtide_double_returned(address, bytes);
      EXPECT_TRUE(core.free(address));
    }
    return failed;
  }

  static void expect_empty(DeviceCore& core, int failed) {
    core.trim();
    const DeviceStats stats = core.stats();
    EXPECT_EQ(stats.failures, failed);
    EXPECT_EQ(stats.requested.current, 0);
    EXPECT_EQ(stats.active_bytes.current, 0);
    EXPECT_EQ(stats.inactive_split_bytes.current, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.cached, 0);
    EXPECT_EQ(stats.reserved.current, 0);
    EXPECT_EQ(stats.segments.current, 0);
  }
};

TEST_F(DeviceCoreFailures, TheDeviceFailsAtEachOf500Points) {
  lowtide_double_set_delay(20);
  int points = 0;
  for (int good = 0; good < 100; ++good) {
    for (const int bad : {1, 2, 3, 10, 1000}) {
      DeviceCore core(std::make_unique<FailingBackend>(make_cuda_backend(0), good, bad));
      const int failed = live(core, static_cast<uint32_t>(good % 10));
      expect_empty(core, failed);
      if (bad == 1000 && good < 3) {
        EXPECT_GT(failed, 0) << "after " << good << " calls";
      }
      ++points;
    }
  }
  EXPECT_EQ(points, 500);
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

TEST_F(DeviceCoreFailures, ABrokenDeviceIsNotCalledFull) {
  DeviceCore core(
      std::make_unique<FailingBackend>(make_cuda_backend(0), 0, INT_MAX, "it is on fire"));
  EXPECT_EQ(core.allocate(kMiB, one_), nullptr);
  EXPECT_THAT(core.shortage(kMiB), ::testing::HasSubstr("the device says \"it is on fire\". Fix:"));
}

TEST_F(DeviceCoreFailures, TheHostFailsInEachOperation) {
  lowtide_double_set_delay(20);
  int failed = 0;
  for (int64_t after = 0; after < 8; ++after) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      DeviceCore core(std::make_unique<FailingBackend>(make_cuda_backend(0), INT_MAX, 0));
      const int failed_here = live(core, seed, after);
      expect_empty(core, failed_here);
      failed += failed_here;
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
}

}  // namespace
}  // namespace lowtide::hooks
