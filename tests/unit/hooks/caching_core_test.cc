// What the shared contract cannot say for every backend: a backend that fails, callbacks that come
// and go while threads run, and a fork in the middle of it all.
#include "hooks/caching_core.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "hooks/backend_cpu.h"
#include "support/mib.h"

namespace lowtide::hooks {
namespace {

// A machine with `bytes` of memory; remembers the largest amount it ever gave out.
class SmallMachine final : public Backend {
 public:
  explicit SmallMachine(int64_t bytes) : left_(bytes) {}
  void* acquire(size_t bytes) noexcept override {
    if (static_cast<int64_t>(bytes) > left_) return nullptr;
    left_ -= static_cast<int64_t>(bytes);
    return memory_->acquire(bytes);
  }
  void give_back(void* base, size_t bytes) noexcept override {
    left_ += static_cast<int64_t>(bytes);
    memory_->give_back(base, bytes);
  }
  [[nodiscard]] size_t granularity() const noexcept override { return 4096; }
  [[nodiscard]] size_t alignment() const noexcept override { return 64 * 1024; }
  [[nodiscard]] const char* name() const noexcept override { return "small machine"; }

 private:
  std::unique_ptr<Backend> memory_ = make_counting_backend();
  int64_t left_;
};

class OneBlockHandler final : public PressureHandler {
 public:
  OneBlockHandler(CachingCore& core, void* block) : core_(core), block_(block) {}
  int64_t free_memory(int64_t need_bytes, int64_t /*request*/) noexcept override {
    need = need_bytes;
    void* const block = std::exchange(block_, nullptr);
    if (block == nullptr) return 0;
    const auto bytes = static_cast<int64_t>(core_.requested_size(block));
    core_.free(block);
    return bytes;
  }
  int64_t need = 0;

 private:
  CachingCore& core_;
  void* block_;
};

TEST(CachingCore, AMachineThatRunsOutGetsTheCacheBackFirst) {
  CachingCore core(std::make_unique<SmallMachine>(4 * kMiB));
  core.free(core.allocate(3 * kMiB));
  EXPECT_NE(core.allocate(2 * kMiB), nullptr);
  EXPECT_EQ(core.stats().segment_returns, 1);
  EXPECT_EQ(core.stats().failures, 0);
}

TEST(CachingCore, AMachineThatRunsOutAsksTheHandlerWithoutCountingALimit) {
  CachingCore core(std::make_unique<SmallMachine>(4 * kMiB));
  OneBlockHandler handler(core, core.allocate(3 * kMiB));
  core.set_pressure_handler(&handler);
  EXPECT_NE(core.allocate(2 * kMiB), nullptr);
  EXPECT_EQ(handler.need, 2 * kMiB);
  EXPECT_EQ(core.allocate(3 * kMiB), nullptr);
  EXPECT_EQ(core.stats().limit_hits, 0);
  EXPECT_EQ(core.stats().failures, 1);
  core.set_pressure_handler(nullptr);
}

TEST(CachingCore, ABackendWithoutRoomForSlabsIsRefused) {
  EXPECT_THROW(CachingCore(make_counting_backend(1 << 20)), InternalError);
}

TEST(CachingCore, DestructionGivesEverySegmentBack) {
  class Balanced final : public Backend {
   public:
    explicit Balanced(int64_t& bytes) : bytes_(bytes) {}
    void* acquire(size_t bytes) noexcept override {
      bytes_ += static_cast<int64_t>(bytes);
      return memory_->acquire(bytes);
    }
    void give_back(void* base, size_t bytes) noexcept override {
      bytes_ -= static_cast<int64_t>(bytes);
      memory_->give_back(base, bytes);
    }
    [[nodiscard]] size_t granularity() const noexcept override { return 4096; }
    [[nodiscard]] size_t alignment() const noexcept override { return 64 * 1024; }
    [[nodiscard]] const char* name() const noexcept override { return "balanced"; }

   private:
    std::unique_ptr<Backend> memory_ = make_counting_backend();
    int64_t& bytes_;
  };
  int64_t bytes = 0;
  {
    CachingCore core(std::make_unique<Balanced>(bytes));
    core.free(core.allocate(kMiB));
    EXPECT_NE(core.allocate(3 * kMiB), nullptr);
    EXPECT_NE(core.allocate(100), nullptr);
    EXPECT_EQ(bytes, core.stats().reserved.current);
  }
  EXPECT_EQ(bytes, 0);
}

TEST(CachingCore, AReplacedHandlerFromInsideItselfDoesNotWaitForItself) {
  class SignsOff final : public PressureHandler {
   public:
    explicit SignsOff(CachingCore& core) : core_(core) {}
    int64_t free_memory(int64_t /*need*/, int64_t /*request*/) noexcept override {
      core_.set_pressure_handler(nullptr);
      return 0;
    }

   private:
    CachingCore& core_;
  };
  CachingCore core(make_counting_backend());
  SignsOff handler(core);
  core.set_pressure_handler(&handler);
  core.set_limit(kMiB);
  EXPECT_NE(core.allocate(kMiB), nullptr);
  EXPECT_EQ(core.allocate(kMiB), nullptr);
}

// Threads allocate at the limit; a handler frees what they offer; sinks and handlers are replaced
// and sinks destroyed all the time.
TEST(CachingCoreStress, CallbacksComeAndGoWhileThreadsAllocate) {
  class Sink final : public LedgerSink {
   public:
    void on_alloc(const MemoryEvent& /*event*/) noexcept override { ++events; }
    void on_free(const MemoryEvent& /*event*/) noexcept override { ++events; }
    std::atomic<int64_t> events{0};
  };
  // Blocks that may be freed by whoever needs room.
  class Pool final : public PressureHandler {
   public:
    explicit Pool(CachingCore& core) : core_(core) {}
    void offer(void* block, size_t bytes) {
      const std::lock_guard lock(mutex_);
      blocks_.emplace_back(block, bytes);
    }
    int64_t free_memory(int64_t need_bytes, int64_t /*request*/) noexcept override {
      std::vector<std::pair<void*, size_t>> victims;
      int64_t freed = 0;
      {
        const std::lock_guard lock(mutex_);
        while (freed < need_bytes && !blocks_.empty()) {
          freed += static_cast<int64_t>(blocks_.back().second);
          victims.push_back(blocks_.back());
          blocks_.pop_back();
        }
      }
      for (const auto& [block, bytes] : victims) core_.free(block);
      return freed;
    }

   private:
    CachingCore& core_;
    std::mutex mutex_;
    std::vector<std::pair<void*, size_t>> blocks_;
  };

  constexpr int64_t kLimit = 4 * kMiB;
  CachingCore core(make_counting_backend());
  core.set_limit(kLimit);
  Pool pool(core);
  core.set_pressure_handler(&pool);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!stop) {
        const size_t bytes = 1 + random() % (random() % 4 == 0 ? 400'000 : 4'000);
        void* const block = core.allocate(bytes);
        if (block == nullptr) continue;
        if (random() % 3 == 0) {
          core.free(block);
        } else {
          pool.offer(block, bytes);
        }
      }
    });
  }
  int64_t events = 0;
  for (int i = 0; i < 150; ++i) {
    auto sink = std::make_unique<Sink>();
    core.set_sink(sink.get());
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    core.set_sink(nullptr);
    core.set_pressure_handler(nullptr);
    core.set_pressure_handler(&pool);
    core.trim();
    const int64_t heard = sink->events;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    EXPECT_EQ(sink->events, heard) << "a sink was called after it was taken away";
    events += heard;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  pool.free_memory(INT64_MAX, 0);
  core.set_pressure_handler(nullptr);

  const CoreStats stats = core.stats();
  EXPECT_GT(events, 0);
  EXPECT_GT(stats.limit_hits, 0);
  EXPECT_GT(stats.pressure_bytes, 0);
  EXPECT_LE(stats.reserved.peak, kLimit);
  EXPECT_EQ(stats.requested.current, 0);
  EXPECT_EQ(stats.blocks.current, 0);
  EXPECT_EQ(core.invalid_frees(), 0);
}

// Field case F59: worker processes are forked while another thread is inside the allocator.
TEST(CachingCoreFork, AChildNeverInheritsAHeldLock) {
  class Sink final : public LedgerSink {
    void on_alloc(const MemoryEvent& /*event*/) noexcept override {}
    void on_free(const MemoryEvent& /*event*/) noexcept override {}
  };
  CachingCore core(make_cpu_backend());
  Sink sink;
  core.set_sink(&sink);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      for (const size_t bytes : {size_t{64}, size_t{40'000}, size_t{70'000}}) {
        core.free(core.allocate(bytes));
      }
      core.trim();
    }
  });
  constexpr int kForks = 200;
  int well = 0;
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a child that hangs dies of it
      void* const block = core.allocate(50'000);
      core.free(block);
      core.set_sink(nullptr);
      _exit(block != nullptr && core.trim() > 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++well;
    if (WIFSIGNALED(status)) break;  // one hang is enough to know
  }
  stop = true;
  busy.join();
  core.set_sink(nullptr);
  EXPECT_EQ(well, kForks);
}

}  // namespace
}  // namespace lowtide::hooks
