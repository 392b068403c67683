// What every caching core must do, whatever its layout and the memory it stands on. A core's own
// file defines a type with `using Core`, `static std::unique_ptr<Core> make_core()` and `static
// constexpr bool kTouchable` (its memory may be written to) and instantiates the suite with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "hooks/counter.h"
#include "hooks/ledger.h"
#include "hooks/pressure_handler.h"
#include "support/mib.h"

namespace lowtide::hooks {

// Frees the blocks it was given, oldest first, at most `per_call` at a time.
template <typename Core>
class FreeingHandler final : public PressureHandler {
 public:
  FreeingHandler(Core& core, size_t per_call) : core_(core), per_call_(per_call) {}
  void offer(void* block, int64_t bytes) { offers_.push_back({block, bytes}); }

  int64_t free_memory(int64_t need_bytes, int64_t request_bytes) noexcept override {
    ++calls;
    last_need_bytes = need_bytes;
    last_request_bytes = request_bytes;
    int64_t freed = 0;
    for (size_t i = 0; i < per_call_ && !offers_.empty(); ++i) {
      core_.free(offers_.front().block);
      freed += offers_.front().bytes;
      offers_.erase(offers_.begin());
    }
    return freed;
  }

  int calls = 0;
  int64_t last_need_bytes = 0;
  int64_t last_request_bytes = 0;

 private:
  struct Offer {
    void* block;
    int64_t bytes;
  };
  Core& core_;
  size_t per_call_;
  std::vector<Offer> offers_;
};

// Keeps what it hears.
class RecordingSink final : public LedgerSink {
 public:
  struct Heard {
    bool alloc;
    MemoryEvent event;
  };
  void on_alloc(const MemoryEvent& event) noexcept override { heard.push_back({true, event}); }
  void on_free(const MemoryEvent& event) noexcept override { heard.push_back({false, event}); }
  std::vector<Heard> heard;
};

template <typename Source>
class AllocatorContract : public ::testing::Test {
 protected:
  using Core = typename Source::Core;

  // Writes to the first and last byte where there is memory.
  static void touch(void* block, size_t bytes) {
    if constexpr (Source::kTouchable) {
      static_cast<char*>(block)[0] = 'a';
      static_cast<char*>(block)[bytes - 1] = 'z';
    }
  }
  void* allocate(size_t bytes) {
    void* const block = core().allocate(bytes);
    EXPECT_NE(block, nullptr) << bytes << " bytes";
    if (block != nullptr) touch(block, bytes);
    return block;
  }
  [[nodiscard]] Core& core() const { return *core_; }
  [[nodiscard]] int64_t rounded(size_t bytes) const {
    return static_cast<int64_t>(core().rounded_size(bytes));
  }

 private:
  const std::unique_ptr<Core> core_ = Source::make_core();
};

TYPED_TEST_SUITE_P(AllocatorContract);

// Sizes as a training step has them: mostly small, some large, each often repeated.
inline size_t random_size(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return 1 + random() % 512;
    case 1:
      return 1 + random() % (16 * 1024);
    case 2:
      return 4096 * (1 + random() % 64);
    default:
      return 1 + random() % (2 * kMiB);
  }
}

// A random but repeatable life of a core: `steps` allocations and frees, about `most` blocks alive.
template <typename Core>
auto live_randomly(Core& core, uint32_t seed, int steps, size_t most) {
  std::mt19937 random(seed);
  std::vector<void*> live;
  for (int i = 0; i < steps; ++i) {
    if (live.empty() || (live.size() < most && random() % 2 == 0)) {
      void* const block = core.allocate(random_size(random));
      if (block != nullptr) live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      core.free(live.back());
      live.pop_back();
    }
  }
  for (void* block : live) core.free(block);
  return core.stats();
}

TYPED_TEST_P(AllocatorContract, AlignsEveryBlock) {
  for (size_t bytes = 1; bytes < 3 * kMiB; bytes += 1 + bytes / 3) {
    void* const block = this->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % TypeParam::Core::kMinAlignment, 0u) << bytes;
  }
}

TYPED_TEST_P(AllocatorContract, LiveBlocksNeverOverlap) {
  std::mt19937 random(7);
  std::map<uintptr_t, size_t> live;  // begin -> bytes
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 200 || random() % 2 == 0) {
      const size_t bytes = random_size(random);
      const auto begin = reinterpret_cast<uintptr_t>(this->allocate(bytes));
      const auto after = live.lower_bound(begin);
      if (after != live.end()) {
        ASSERT_LE(begin + bytes, after->first);
      }
      if (after != live.begin()) {
        const auto& before = *std::prev(after);
        ASSERT_LE(before.first + before.second, begin);
      }
      live[begin] = bytes;
    } else {
      const auto victim = std::next(live.begin(), static_cast<int>(random() % live.size()));
      this->core().free(reinterpret_cast<void*>(victim->first));
      live.erase(victim);
    }
  }
}

TYPED_TEST_P(AllocatorContract, AFreedBlockIsUsedAgain) {
  for (const size_t bytes : {size_t{64}, size_t{5000}, size_t{16384}, size_t{100000}}) {
    void* const first = this->allocate(bytes);
    this->core().free(first);
    const int64_t acquires = this->core().stats().segment_acquires;
    EXPECT_EQ(this->allocate(bytes), first) << bytes;
    EXPECT_EQ(this->core().stats().segment_acquires, acquires) << bytes;
  }
}

TYPED_TEST_P(AllocatorContract, StatisticsAgreeWithAShadowToTheByte) {
  std::mt19937 random(11);
  std::map<void*, size_t> live;
  Counter requested;
  Counter rounded;
  Counter blocks;
  const auto add = [](Counter& counter, int64_t amount) {
    counter.current += amount;
    counter.peak = std::max(counter.peak, counter.current);
  };
  // With a limit, so that a block is never larger than its own rounding.
  this->core().set_limit(int64_t{1} << 40);
  for (int i = 0; i < 5000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const size_t bytes = random_size(random);
      live[this->allocate(bytes)] = bytes;
      add(requested, static_cast<int64_t>(bytes));
      add(rounded, this->rounded(bytes));
      add(blocks, 1);
    } else {
      const auto victim = std::next(live.begin(), static_cast<int>(random() % live.size()));
      ASSERT_EQ(this->core().requested_size(victim->first), victim->second);
      add(requested, -static_cast<int64_t>(victim->second));
      add(rounded, -this->rounded(victim->second));
      add(blocks, -1);
      this->core().free(victim->first);
      live.erase(victim);
    }
    const auto stats = this->core().stats();
    ASSERT_EQ(stats.requested.current, requested.current);
    ASSERT_EQ(stats.rounded.current, rounded.current);
    ASSERT_EQ(stats.blocks.current, blocks.current);
    ASSERT_GE(stats.reserved.current, stats.rounded.current + stats.cached);
  }
  const auto stats = this->core().stats();
  EXPECT_EQ(stats.requested.peak, requested.peak);
  EXPECT_EQ(stats.rounded.peak, rounded.peak);
  EXPECT_EQ(stats.blocks.peak, blocks.peak);
  EXPECT_EQ(stats.failures, 0);
}

TYPED_TEST_P(AllocatorContract, PeaksStartAgainFromWhatIsLive) {
  void* const kept = this->allocate(1000);
  this->core().free(this->allocate(8 * kMiB));
  this->core().trim();
  this->core().reset_peaks();
  const auto stats = this->core().stats();
  EXPECT_EQ(stats.requested.peak, 1000);
  EXPECT_EQ(stats.rounded.peak, this->rounded(1000));
  EXPECT_EQ(stats.reserved.peak, stats.reserved.current);
  EXPECT_LT(stats.reserved.peak, 4 * kMiB);
  EXPECT_EQ(stats.blocks.peak, 1);
  this->core().free(kept);
}

TYPED_TEST_P(AllocatorContract, TheLimitIsNeverCrossed) {
  constexpr int64_t kLimit = 8 * kMiB;
  this->core().set_limit(kLimit);
  const auto stats = live_randomly(this->core(), 5, 20000, 60);
  EXPECT_LE(stats.reserved.peak, kLimit);
  EXPECT_GT(stats.reserved.peak, kLimit * 9 / 10);
  EXPECT_GT(stats.failures, 0);
  EXPECT_EQ(stats.limit_hits, stats.failures);
  EXPECT_EQ(stats.blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, TheCacheGoesBeforeAnybodyIsAsked) {
  FreeingHandler handler(this->core(), 1);
  this->core().set_pressure_handler(&handler);
  this->core().set_limit(4 * kMiB);
  this->core().free(this->allocate(2 * kMiB));
  this->core().free(this->allocate(1 * kMiB));
  void* const block = this->allocate(3 * kMiB);
  EXPECT_EQ(handler.calls, 0);
  EXPECT_EQ(this->core().stats().limit_hits, 0);
  this->core().free(block);
  this->core().set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, TheHandlerIsAskedUntilItFits) {
  FreeingHandler handler(this->core(), 1);
  this->core().set_pressure_handler(&handler);
  this->core().set_limit(4 * kMiB);
  for (int i = 0; i < 4; ++i) handler.offer(this->allocate(1 * kMiB), 1 * kMiB);
  void* const block = this->allocate(2 * kMiB + 4096);
  EXPECT_GE(handler.calls, 3);
  EXPECT_LE(handler.calls, 4);
  EXPECT_GT(handler.last_need_bytes, 0);
  EXPECT_EQ(handler.last_request_bytes, 2 * kMiB + 4096);
  const auto stats = this->core().stats();
  EXPECT_EQ(stats.limit_hits, 1);
  EXPECT_EQ(stats.pressure_bytes, handler.calls * kMiB);
  EXPECT_EQ(stats.failures, 0);
  EXPECT_LE(stats.reserved.peak, 4 * kMiB);
  this->core().free(block);
  this->core().set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, FailsWhenNothingIsLeftToFree) {
  FreeingHandler handler(this->core(), 1);
  this->core().set_pressure_handler(&handler);
  this->core().set_limit(2 * kMiB);
  void* const kept = this->allocate(1 * kMiB);
  EXPECT_EQ(this->core().allocate(1 * kMiB + 1), nullptr);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_GT(handler.last_need_bytes, 0);
  EXPECT_EQ(this->core().stats().failures, 1);
  EXPECT_EQ(this->core().stats().requested.current, 1 * kMiB);
  EXPECT_NE(this->core().allocate(1 * kMiB), nullptr);
  this->core().free(kept);
  this->core().set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, WhatCanNeverFitEvictsNothing) {
  FreeingHandler handler(this->core(), 1);
  this->core().set_pressure_handler(&handler);
  this->core().set_limit(2 * kMiB);
  handler.offer(this->allocate(1 * kMiB), 1 * kMiB);
  EXPECT_EQ(this->core().allocate(2 * kMiB + 1), nullptr);
  EXPECT_EQ(handler.calls, 0);
  this->core().set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, AnAllocationInsideTheHandlerDoesNotAskAgain) {
  class Greedy final : public PressureHandler {
   public:
    explicit Greedy(typename TypeParam::Core& core) : core_(core) {}
    int64_t free_memory(int64_t /*need*/, int64_t /*request*/) noexcept override {
      ++calls;
      got_one |= core_.allocate(1 * kMiB) != nullptr;
      return 0;
    }
    int calls = 0;
    bool got_one = false;

   private:
    typename TypeParam::Core& core_;
  };
  Greedy handler(this->core());
  this->core().set_pressure_handler(&handler);
  this->core().set_limit(2 * kMiB);
  this->allocate(2 * kMiB);
  EXPECT_EQ(this->core().allocate(1 * kMiB), nullptr);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_FALSE(handler.got_one);
  EXPECT_EQ(this->core().stats().failures, 2);
  this->core().set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, ZeroAndHugeRequestsGiveNull) {
  EXPECT_EQ(this->core().allocate(0), nullptr);
  EXPECT_EQ(this->core().stats().failures, 0);
  FreeingHandler handler(this->core(), 1);
  handler.offer(this->allocate(100), 128);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, size_t{PTRDIFF_MAX}, SIZE_MAX / 2 + 1}) {
    EXPECT_EQ(this->core().allocate(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(this->core().stats().failures, 4);
  EXPECT_EQ(handler.calls, 0);
  EXPECT_EQ(this->core().stats().requested.current, 100);
}

TYPED_TEST_P(AllocatorContract, InvalidFreesAreCountedAndIgnored) {
  void* const small = this->allocate(100);
  void* const neighbour = this->allocate(100);
  void* const large = this->allocate(1 * kMiB);
  int foreign = 0;
  const auto at = [](void* block, int64_t offset) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(block) +
                                   static_cast<uintptr_t>(offset));
  };
  this->core().free(nullptr);
  EXPECT_EQ(this->core().invalid_frees(), 0);
  this->core().free(&foreign);
  this->core().free(at(small, 64));              // inside a block
  this->core().free(at(small, 1));               // not aligned
  this->core().free(at(small, 10 * 128));        // a block that nobody owns
  this->core().free(at(small, 64 * 1024 - 64));  // the unused tail of the slab
  this->core().free(at(large, 4096));            // inside a large block
  this->core().free(at(large, 128 * 1024));
  EXPECT_EQ(this->core().invalid_frees(), 7);
  EXPECT_EQ(this->core().requested_size(at(small, 64)), 0u);
  EXPECT_EQ(this->core().requested_size(at(large, 4096)), 0u);
  EXPECT_EQ(this->core().stats().requested.current, 200 + kMiB);

  this->core().free(small);
  this->core().free(large);
  this->core().free(small);
  this->core().free(large);
  EXPECT_EQ(this->core().invalid_frees(), 9);
  EXPECT_EQ(this->core().stats().requested.current, 100);
  EXPECT_EQ(this->core().stats().blocks.current, 1);
  this->core().free(neighbour);
  this->core().trim();
  this->core().free(neighbour);
  EXPECT_EQ(this->core().invalid_frees(), 10);
  EXPECT_EQ(this->core().stats().blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, TheSinkHearsEverythingInOrder) {
  RecordingSink sink;
  this->core().set_sink(&sink);
  void* first = nullptr;
  {
    const ScopedOp op(4);
    first = this->allocate(1000);
  }
  void* const second = this->allocate(100'000);
  {
    const ScopedOp op(5);
    this->core().free(first);
  }
  this->core().free(second);
  this->core().free(second);  // invalid: nothing to hear
  this->core().set_sink(nullptr);
  this->core().free(this->allocate(64));

  ASSERT_EQ(sink.heard.size(), 4u);
  const std::array<bool, 4> allocs{true, true, false, false};
  const std::array<void*, 4> addresses{first, second, first, second};
  const std::array<int32_t, 4> ops{4, -1, 5, -1};
  const std::array<int64_t, 4> requested{1000, 100'000, 1000, 100'000};
  const std::array<int64_t, 4> rounded{this->rounded(1000), this->rounded(100'000),
                                       this->rounded(1000), this->rounded(100'000)};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sink.heard[i].alloc, allocs[i]) << i;
    EXPECT_EQ(sink.heard[i].event.sequence, i + 1) << i;
    EXPECT_EQ(sink.heard[i].event.address, addresses[i]) << i;
    EXPECT_EQ(sink.heard[i].event.op, ops[i]) << i;
    EXPECT_EQ(sink.heard[i].event.requested_bytes, requested[i]) << i;
    EXPECT_EQ(sink.heard[i].event.rounded_bytes, rounded[i]) << i;
  }
}

// While the sink hears of a free, nobody else can get the block, and the core can be used.
TYPED_TEST_P(AllocatorContract, AFreeIsReportedBeforeTheBlockIsAvailable) {
  class Prying final : public LedgerSink {
   public:
    explicit Prying(typename TypeParam::Core& core) : core_(core) {}
    void on_alloc(const MemoryEvent& /*event*/) noexcept override {}
    void on_free(const MemoryEvent& event) noexcept override {
      if (inside_) return;
      inside_ = true;
      void* const other = core_.allocate(static_cast<size_t>(event.requested_bytes));
      handed_out_early |= other == event.address;
      core_.free(event.address);  // a double free: ignored
      core_.free(other);
      inside_ = false;
    }
    bool handed_out_early = false;

   private:
    typename TypeParam::Core& core_;
    bool inside_ = false;
  };
  Prying sink(this->core());
  this->core().set_sink(&sink);
  for (const size_t bytes : {size_t{100}, size_t{50'000}}) this->core().free(this->allocate(bytes));
  this->core().set_sink(nullptr);
  EXPECT_FALSE(sink.handed_out_early);
  EXPECT_EQ(this->core().invalid_frees(), 2);
  EXPECT_EQ(this->core().stats().blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, ThreadsShareOneCore) {
  class Balance final : public LedgerSink {
   public:
    void on_alloc(const MemoryEvent& event) noexcept override { bytes += event.requested_bytes; }
    void on_free(const MemoryEvent& event) noexcept override { bytes -= event.requested_bytes; }
    std::atomic<int64_t> bytes{0};
  };
  constexpr int kThreads = 4;
  Balance sink;
  this->core().set_sink(&sink);
  this->core().set_limit(32 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &wrong] {
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<std::pair<char*, size_t>> live;
      for (int i = 0; i < 4000; ++i) {
        if (live.size() < 12 && (live.empty() || random() % 2 == 0)) {
          const size_t bytes = random_size(random);
          auto* const block = static_cast<char*>(this->core().allocate(bytes));
          if (block == nullptr) continue;
          if constexpr (TypeParam::kTouchable) {
            block[0] = block[bytes - 1] = static_cast<char>('a' + t);
          }
          live.emplace_back(block, bytes);
        } else {
          const auto [block, bytes] = live.back();
          if constexpr (TypeParam::kTouchable) {
            if (block[0] != 'a' + t || block[bytes - 1] != 'a' + t) ++wrong;
          }
          this->core().free(block);
          live.pop_back();
        }
      }
      for (const auto& [block, bytes] : live) this->core().free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  this->core().set_sink(nullptr);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sink.bytes, 0);
  const auto stats = this->core().stats();
  EXPECT_EQ(stats.requested.current, 0);
  EXPECT_EQ(stats.blocks.current, 0);
  EXPECT_LE(stats.reserved.peak, 32 * kMiB);
  EXPECT_EQ(stats.cached, stats.reserved.current);
  EXPECT_EQ(this->core().invalid_frees(), 0);
}

TYPED_TEST_P(AllocatorContract, LoweringTheLimitGivesTheCacheBackAtOnce) {
  void* const freed = this->allocate(3 * kMiB);
  void* const kept = this->allocate(1 * kMiB);
  this->core().free(freed);
  const auto before = this->core().stats();
  EXPECT_GE(before.cached, 3 * kMiB);
  this->core().set_limit(before.reserved.current - before.cached);
  EXPECT_EQ(this->core().stats().cached, 0);
  EXPECT_EQ(this->core().stats().reserved.current, before.reserved.current - before.cached);
  EXPECT_EQ(this->core().requested_size(kept), static_cast<size_t>(kMiB));
  this->core().free(kept);
}

TYPED_TEST_P(AllocatorContract, TheSameSequenceGivesTheSameStatistics) {
  for (const int64_t limit : {TypeParam::Core::kNoLimit, 8 * kMiB}) {
    const auto one = TypeParam::make_core();
    const auto other = TypeParam::make_core();
    const auto keep_addresses_apart = one->allocate(5 * kMiB);
    one->free(keep_addresses_apart);
    one->trim();
    one->reset_peaks();
    one->set_limit(limit);
    other->set_limit(limit);
    const auto a = live_randomly(*one, 23, 6000, 60);
    const auto b = live_randomly(*other, 23, 6000, 60);
    EXPECT_EQ(a.requested.peak, b.requested.peak);
    EXPECT_EQ(a.rounded.peak, b.rounded.peak);
    EXPECT_EQ(a.reserved.peak, b.reserved.peak);
    EXPECT_EQ(a.reserved.current, b.reserved.current);
    EXPECT_EQ(a.failures, b.failures);
  }
}

TYPED_TEST_P(AllocatorContract, TrimGivesBackAllThatNobodyUses) {
  std::mt19937 random(31);
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(this->allocate(random_size(random)));
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (void* block : blocks) this->core().free(block);
  const int64_t reserved = this->core().stats().reserved.current;
  EXPECT_EQ(this->core().stats().cached, reserved);
  EXPECT_EQ(this->core().trim(), reserved);
  EXPECT_EQ(this->core().stats().reserved.current, 0);
  EXPECT_EQ(this->core().stats().cached, 0);
}

REGISTER_TYPED_TEST_SUITE_P(AllocatorContract, AlignsEveryBlock, LiveBlocksNeverOverlap,
                            AFreedBlockIsUsedAgain, StatisticsAgreeWithAShadowToTheByte,
                            PeaksStartAgainFromWhatIsLive, TheLimitIsNeverCrossed,
                            TheCacheGoesBeforeAnybodyIsAsked, TheHandlerIsAskedUntilItFits,
                            FailsWhenNothingIsLeftToFree, WhatCanNeverFitEvictsNothing,
                            AnAllocationInsideTheHandlerDoesNotAskAgain,
                            ZeroAndHugeRequestsGiveNull, InvalidFreesAreCountedAndIgnored,
                            TheSinkHearsEverythingInOrder, AFreeIsReportedBeforeTheBlockIsAvailable,
                            ThreadsShareOneCore, LoweringTheLimitGivesTheCacheBackAtOnce,
                            TheSameSequenceGivesTheSameStatistics, TrimGivesBackAllThatNobodyUses);

}  // namespace lowtide::hooks
