// Many threads on a few streams, and a process that forks, exits or is killed among them. The
// double judges: it is told of every block, and speaks up where one is handed out too early.
//
// LOWTIDE_STRESS_OPERATIONS sets how many operations there are (default 100,000 over all threads).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "unit/hooks/device_core_fixture.h"

namespace lowtide::hooks {
namespace {

int stress_operations() {
  const char* const text = std::getenv("LOWTIDE_STRESS_OPERATIONS");
  return text != nullptr ? std::atoi(text) : 100'000;
}

size_t stress_size(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return 1 + random() % 4096;
    case 1:
      return 1 + random() % (size_t{1} << 20);
    case 2:
      return 1 + random() % (size_t{8} << 20);
    default:
      return 512 * (1 + random() % 64);
  }
}

class DeviceCoreStress : public DeviceCoreTest {
 protected:
  static constexpr int kThreads = 8;
  static constexpr int kStreams = 4;

  void SetUp() override {
    DeviceCoreTest::SetUp();
    for (cudaStream_t& stream : streams_) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  void TearDown() override {
    DeviceCoreTest::TearDown();
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  // A random life of `operations` on all streams. What is live at the end is freed.
  void live(uint32_t seed, int operations) {
    struct Held {
      void* address;
      size_t bytes;
    };
    std::mt19937 random(seed);
    std::vector<Held> blocks;
    const auto give_up = [&](size_t index) {
      const Held block = blocks[index];
      std::swap(blocks[index], blocks.back());
      blocks.pop_back();
      lowtide_double_returned(block.address, block.bytes);
      if (!core().free(block.address)) ++refused;
    };
    for (int i = 0; i < operations; ++i) {
      const cudaStream_t stream = streams_[random() % kStreams];
      const uint32_t dice = random() % 16;
      if (blocks.size() < 24 && (blocks.empty() || dice < 7)) {
        const size_t bytes = stress_size(random);
        void* const address = core().allocate(bytes, stream);
        if (address == nullptr) {
          ++failed;
          continue;
        }
        lowtide_double_given(address, bytes, stream);
        lowtide_double_touch(address, bytes, stream);
        blocks.push_back({address, bytes});
      } else if (dice < 10) {
        const Held& block = blocks[random() % blocks.size()];
        lowtide_double_touch(block.address, block.bytes, stream);
        core().use_on(block.address, stream);
      } else if (dice == 15 && random() % 64 == 0) {
        core().trim();
      } else {
        give_up(random() % blocks.size());
      }
    }
    while (!blocks.empty()) give_up(blocks.size() - 1);
  }

  void live_in_threads(int operations) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(
          [this, t, operations] { live(static_cast<uint32_t>(t + 1), operations / kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  cudaStream_t streams_[kStreams] = {};
  std::atomic<int> refused{0};
  std::atomic<int> failed{0};
};

TEST_F(DeviceCoreStress, ThreadsAndStreamsNeverMeetInOneBlock) {
  lowtide_double_set_delay(30);
  lowtide_double_set_memory(0, 4096 * kMiB);
  live_in_threads(stress_operations());
  core().trim();
  const DeviceStats stats = core().stats();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(failed, 0);
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
  live_in_threads(stress_operations() / 4);
  const DeviceStats stats = core().stats();
  EXPECT_LE(stats.reserved.peak, static_cast<int64_t>(128 * kMiB));
  EXPECT_LE(lowtide_double_largest_bytes(0) - held_before_, 128 * kMiB);
  EXPECT_GT(stats.alloc_retries, 0);
  EXPECT_GT(stats.stream_waits, 0);
  EXPECT_EQ(stats.failures, failed);
  EXPECT_EQ(stats.requested.current, 0);
}

// What a training program's data loaders do: fork while others allocate. The child cannot use the
// GPU, but frees what it inherited, and ends by whichever way.
TEST_F(DeviceCoreStress, AForkedChildEndsAndTheParentGoesOn) {
  constexpr int kRounds = 100;
  void* const inherited = allocate(3 * kMiB, one_);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([this, t, &stop] {
      for (uint32_t round = 0; !stop; ++round) live(1000 * t + round, 50);
    });
  }
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a hang becomes a failure
      bool right = core().allocate(kMiB, one_) == nullptr;
      right = right && core().shortage(kMiB).find("spawn") != std::string::npos;
      right = right && core().free(inherited) && !core().free(inherited);
      right = right && core().trim() == 0;
      if (round % 2 == 1) kill(getpid(), SIGKILL);
      _exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (round % 2 == 1 ? !killed : !ended) ++wrong;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  free(inherited);
  EXPECT_EQ(core().stats().requested.current, 0);
}

}  // namespace
}  // namespace lowtide::hooks
