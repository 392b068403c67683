// What every caching core must do, whatever backend it stands on. A backend's own file defines
// a type with `static std::unique_ptr<hooks::Backend> make()` and `static constexpr bool
// kTouchable` (its memory may be written to) and instantiates the suite with it.
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

#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "support/mib.h"

namespace lowtide::hooks {

// Frees the blocks it was given, oldest first, at most `per_call` at a time.
class FreeingHandler final : public PressureHandler {
 public:
  FreeingHandler(CachingCore& core, size_t per_call) : core_(core), per_call_(per_call) {}
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
  CachingCore& core_;
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
  // Writes to the first and last byte where there is memory.
  static void touch(void* block, size_t bytes) {
    if constexpr (Source::kTouchable) {
      static_cast<char*>(block)[0] = 'a';
      static_cast<char*>(block)[bytes - 1] = 'z';
    }
  }
  void* allocate(size_t bytes) {
    void* const block = core.allocate(bytes);
    EXPECT_NE(block, nullptr) << bytes << " bytes";
    if (block != nullptr) touch(block, bytes);
    return block;
  }

  CachingCore core{Source::make()};
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
inline CoreStats live_randomly(CachingCore& core, uint32_t seed, int steps, size_t most) {
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

TYPED_TEST_P(AllocatorContract, AlignsEveryBlockTo64Bytes) {
  for (size_t bytes = 1; bytes < 3 * kMiB; bytes += 1 + bytes / 3) {
    void* const block = this->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % CachingCore::kMinAlignment, 0u) << bytes;
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
      this->core.free(reinterpret_cast<void*>(victim->first));
      live.erase(victim);
    }
  }
}

TYPED_TEST_P(AllocatorContract, AFreedBlockIsUsedAgain) {
  for (const size_t bytes : {size_t{64}, size_t{5000}, size_t{16384}, size_t{100000}}) {
    void* const first = this->allocate(bytes);
    this->core.free(first);
    const int64_t acquires = this->core.stats().segment_acquires;
    EXPECT_EQ(this->allocate(bytes), first) << bytes;
    EXPECT_EQ(this->core.stats().segment_acquires, acquires) << bytes;
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
  this->core.set_limit(int64_t{1} << 40);
  for (int i = 0; i < 5000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const size_t bytes = random_size(random);
      live[this->allocate(bytes)] = bytes;
      add(requested, static_cast<int64_t>(bytes));
      add(rounded, static_cast<int64_t>(this->core.rounded_size(bytes)));
      add(blocks, 1);
    } else {
      const auto victim = std::next(live.begin(), static_cast<int>(random() % live.size()));
      ASSERT_EQ(this->core.requested_size(victim->first), victim->second);
      add(requested, -static_cast<int64_t>(victim->second));
      add(rounded, -static_cast<int64_t>(this->core.rounded_size(victim->second)));
      add(blocks, -1);
      this->core.free(victim->first);
      live.erase(victim);
    }
    const CoreStats stats = this->core.stats();
    ASSERT_EQ(stats.requested.current, requested.current);
    ASSERT_EQ(stats.rounded.current, rounded.current);
    ASSERT_EQ(stats.blocks.current, blocks.current);
    ASSERT_GE(stats.reserved.current, stats.rounded.current + stats.cached);
  }
  const CoreStats stats = this->core.stats();
  EXPECT_EQ(stats.requested.peak, requested.peak);
  EXPECT_EQ(stats.rounded.peak, rounded.peak);
  EXPECT_EQ(stats.blocks.peak, blocks.peak);
  EXPECT_EQ(stats.alloc_calls - stats.free_calls, blocks.current);
  EXPECT_EQ(stats.failures, 0);
}

TYPED_TEST_P(AllocatorContract, ReservedIsExactForLargeBlocks) {
  void* const first = this->allocate(1 * kMiB + 1);
  void* const second = this->allocate(100'000);
  const int64_t both = (1 * kMiB + 4096) + 102'400;
  EXPECT_EQ(this->core.stats().reserved.current, both);
  EXPECT_EQ(this->core.stats().rounded.current, both);
  EXPECT_EQ(this->core.stats().cached, 0);
  this->core.free(first);
  EXPECT_EQ(this->core.stats().reserved.current, both);
  EXPECT_EQ(this->core.stats().cached, 1 * kMiB + 4096);
  this->core.free(second);
  EXPECT_EQ(this->core.stats().cached, both);
  EXPECT_EQ(this->core.trim(), both);
  EXPECT_EQ(this->core.stats().reserved.current, 0);
  EXPECT_EQ(this->core.stats().reserved.peak, both);
}

TYPED_TEST_P(AllocatorContract, PeaksStartAgainFromWhatIsLive) {
  void* const kept = this->allocate(1000);
  this->core.free(this->allocate(1 * kMiB));
  this->core.trim();
  this->core.reset_peaks();
  const CoreStats stats = this->core.stats();
  EXPECT_EQ(stats.requested.peak, 1000);
  EXPECT_EQ(stats.rounded.peak, 1024);
  EXPECT_EQ(stats.reserved.peak, static_cast<int64_t>(CachingCore::kSlabBytes));
  EXPECT_EQ(stats.blocks.peak, 1);
  this->core.free(kept);
}

TYPED_TEST_P(AllocatorContract, EmptySlabsAreGivenBack) {
  std::vector<void*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(this->allocate(64 + 64 * (i % 7)));
  EXPECT_EQ(this->core.trim(), 0);
  for (void* block : blocks) this->core.free(block);
  const int64_t reserved = this->core.stats().reserved.current;
  EXPECT_GT(reserved, 0);
  EXPECT_EQ(this->core.stats().cached, reserved);
  EXPECT_EQ(this->core.trim(), reserved);
  EXPECT_EQ(this->core.stats().reserved.current, 0);
}

TYPED_TEST_P(AllocatorContract, AnEmptySlabServesAnotherSize) {
  this->core.free(this->allocate(64));
  void* const other = this->allocate(9000);
  void* const large = this->allocate(64 * 1024);
  EXPECT_EQ(this->core.stats().segment_acquires, 2);
  this->core.free(other);
  void* const second_large = this->allocate(62 * 1024);
  EXPECT_EQ(this->core.stats().segment_acquires, 2);
  this->core.free(large);
  this->core.free(second_large);
}

// Blocks die in random order until one in twenty is left, then new ones come: they go into the
// holes, not into new slabs.
TYPED_TEST_P(AllocatorContract, FewHalfEmptySlabs) {
  std::mt19937 random(3);
  std::vector<void*> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(this->allocate(1024));
  const int64_t full = this->core.stats().reserved.current;
  EXPECT_EQ(full, 4096 * 1024);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (int round = 0; round < 50; ++round) {
    while (blocks.size() > 1024) {
      this->core.free(blocks.back());
      blocks.pop_back();
    }
    while (blocks.size() < 2048) blocks.push_back(this->allocate(1024));
    std::shuffle(blocks.begin(), blocks.end(), random);
  }
  this->core.trim();
  EXPECT_LE(this->core.stats().reserved.current, full * 3 / 4);
}

TYPED_TEST_P(AllocatorContract, NearSizesShareSegmentsOnlyWithoutABudget) {
  this->core.free(this->allocate(1 * kMiB + 32 * 1024));
  void* const near = this->allocate(1 * kMiB);
  EXPECT_EQ(this->core.stats().segment_acquires, 1);
  EXPECT_EQ(this->core.stats().rounded.current, 1 * kMiB + 32 * 1024);
  this->core.free(near);
  void* const far = this->allocate(900 * 1024);  // 1/16 more is less than what is cached
  EXPECT_EQ(this->core.stats().segment_acquires, 2);
  this->core.free(far);
  this->core.trim();

  this->core.set_limit(64 * kMiB);
  this->core.free(this->allocate(1 * kMiB + 32 * 1024));
  void* const exact = this->allocate(1 * kMiB);
  EXPECT_EQ(this->core.stats().rounded.current, 1 * kMiB);
  this->core.free(exact);
}

TYPED_TEST_P(AllocatorContract, TheLimitIsNeverCrossed) {
  constexpr int64_t kLimit = 8 * kMiB;
  this->core.set_limit(kLimit);
  const CoreStats stats = live_randomly(this->core, 5, 20000, 60);
  EXPECT_LE(stats.reserved.peak, kLimit);
  EXPECT_GT(stats.reserved.peak, kLimit * 9 / 10);
  EXPECT_GT(stats.failures, 0);
  EXPECT_EQ(stats.limit_hits, stats.failures);
  EXPECT_EQ(stats.blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, TheCacheGoesBeforeAnybodyIsAsked) {
  FreeingHandler handler(this->core, 1);
  this->core.set_pressure_handler(&handler);
  this->core.set_limit(4 * kMiB);
  this->core.free(this->allocate(2 * kMiB));
  this->core.free(this->allocate(1 * kMiB));
  void* const block = this->allocate(3 * kMiB);
  EXPECT_EQ(handler.calls, 0);
  EXPECT_EQ(this->core.stats().limit_hits, 0);
  // The one that fits alone made enough room.
  EXPECT_EQ(this->core.stats().segment_returns, 1);
  EXPECT_EQ(this->core.stats().cached, 1 * kMiB);
  this->core.free(block);
  this->core.set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, TheHandlerIsAskedUntilItFits) {
  FreeingHandler handler(this->core, 1);
  this->core.set_pressure_handler(&handler);
  this->core.set_limit(4 * kMiB);
  for (int i = 0; i < 4; ++i) handler.offer(this->allocate(1 * kMiB), 1 * kMiB);
  void* const block = this->allocate(2 * kMiB + 4096);
  EXPECT_EQ(handler.calls, 3);
  EXPECT_EQ(handler.last_need_bytes, 4096);
  EXPECT_EQ(handler.last_request_bytes, 2 * kMiB + 4096);
  const CoreStats stats = this->core.stats();
  EXPECT_EQ(stats.limit_hits, 1);
  EXPECT_EQ(stats.pressure_bytes, 3 * kMiB);
  EXPECT_EQ(stats.failures, 0);
  EXPECT_LE(stats.reserved.peak, 4 * kMiB);
  this->core.free(block);
  this->core.set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, FailsWhenNothingIsLeftToFree) {
  FreeingHandler handler(this->core, 1);
  this->core.set_pressure_handler(&handler);
  this->core.set_limit(2 * kMiB);
  void* const kept = this->allocate(1 * kMiB);
  EXPECT_EQ(this->core.allocate(1 * kMiB + 1), nullptr);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_EQ(handler.last_need_bytes, 4096);
  EXPECT_EQ(this->core.stats().failures, 1);
  EXPECT_EQ(this->core.stats().requested.current, 1 * kMiB);
  EXPECT_NE(this->core.allocate(1 * kMiB), nullptr);
  this->core.free(kept);
  this->core.set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, WhatCanNeverFitEvictsNothing) {
  FreeingHandler handler(this->core, 1);
  this->core.set_pressure_handler(&handler);
  this->core.set_limit(2 * kMiB);
  handler.offer(this->allocate(1 * kMiB), 1 * kMiB);
  EXPECT_EQ(this->core.allocate(2 * kMiB + 1), nullptr);
  EXPECT_EQ(handler.calls, 0);
  this->core.set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, AnAllocationInsideTheHandlerDoesNotAskAgain) {
  class Greedy final : public PressureHandler {
   public:
    explicit Greedy(CachingCore& core) : core_(core) {}
    int64_t free_memory(int64_t /*need*/, int64_t /*request*/) noexcept override {
      ++calls;
      got_one |= core_.allocate(1 * kMiB) != nullptr;
      return 0;
    }
    int calls = 0;
    bool got_one = false;

   private:
    CachingCore& core_;
  };
  Greedy handler(this->core);
  this->core.set_pressure_handler(&handler);
  this->core.set_limit(1 * kMiB);
  this->allocate(1 * kMiB);
  EXPECT_EQ(this->core.allocate(1 * kMiB), nullptr);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_FALSE(handler.got_one);
  EXPECT_EQ(this->core.stats().failures, 2);
  this->core.set_pressure_handler(nullptr);
}

TYPED_TEST_P(AllocatorContract, ReservedStaysAtTheTargetWhileLiveBytesAllowIt) {
  constexpr int64_t kTarget = 4 * kMiB;
  this->core.set_reserved_target(kTarget);
  std::vector<void*> live;
  // Sizes all differ, so no cached segment can be used again: without the rule reserved would grow.
  for (int i = 1; i <= 80; ++i) {
    live.push_back(this->allocate(static_cast<size_t>(kMiB + 4096 * i)));
    if (live.size() == 3) {
      this->core.free(live.front());
      live.erase(live.begin());
    }
    ASSERT_LE(this->core.stats().reserved.current, kTarget);
  }
  // Live bytes above the target are never refused.
  void* const large = this->allocate(static_cast<size_t>(kTarget));
  const CoreStats stats = this->core.stats();
  EXPECT_EQ(stats.reserved.current, stats.rounded.current);
  EXPECT_GT(stats.reserved.current, kTarget);
  EXPECT_EQ(stats.limit_hits, 0);
  for (void* block : live) this->core.free(block);
  this->core.free(large);
}

TYPED_TEST_P(AllocatorContract, LoweringLimitOrTargetGivesTheCacheBackAtOnce) {
  for (int i = 0; i < 2; ++i) {
    void* const a = this->allocate(1 * kMiB);
    void* const b = this->allocate(2 * kMiB);
    void* const kept = this->allocate(1 * kMiB);
    this->core.free(a);
    this->core.free(b);
    EXPECT_EQ(this->core.stats().reserved.current, 4 * kMiB);
    if (i == 0) {
      this->core.set_limit(3 * kMiB);
    } else {
      this->core.set_reserved_target(3 * kMiB);
    }
    EXPECT_EQ(this->core.stats().reserved.current, 3 * kMiB);  // the one that fits went
    this->core.free(kept);
    this->core.set_limit(CachingCore::kNoLimit);
    this->core.set_reserved_target(CachingCore::kNoLimit);
    this->core.trim();
  }
}

TYPED_TEST_P(AllocatorContract, ZeroAndHugeRequestsGiveNull) {
  EXPECT_EQ(this->core.allocate(0), nullptr);
  EXPECT_EQ(this->core.stats().failures, 0);
  FreeingHandler handler(this->core, 1);
  handler.offer(this->allocate(100), 128);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, size_t{PTRDIFF_MAX}, SIZE_MAX / 2 + 1}) {
    EXPECT_EQ(this->core.allocate(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(this->core.stats().failures, 4);
  EXPECT_EQ(handler.calls, 0);
  EXPECT_EQ(this->core.stats().requested.current, 100);
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
  this->core.free(nullptr);
  EXPECT_EQ(this->core.invalid_frees(), 0);
  this->core.free(&foreign);
  this->core.free(at(small, 64));              // inside a block
  this->core.free(at(small, 1));               // not aligned
  this->core.free(at(small, 10 * 128));        // a block that nobody owns
  this->core.free(at(small, 64 * 1024 - 64));  // the unused tail of the slab
  this->core.free(at(large, 4096));            // inside a large block
  this->core.free(at(large, 128 * 1024));
  EXPECT_EQ(this->core.invalid_frees(), 7);
  EXPECT_EQ(this->core.requested_size(at(small, 64)), 0u);
  EXPECT_EQ(this->core.requested_size(at(large, 4096)), 0u);
  EXPECT_EQ(this->core.stats().requested.current, 200 + kMiB);

  this->core.free(small);
  this->core.free(large);
  this->core.free(small);
  this->core.free(large);
  EXPECT_EQ(this->core.invalid_frees(), 9);
  EXPECT_EQ(this->core.stats().requested.current, 100);
  EXPECT_EQ(this->core.stats().blocks.current, 1);
  this->core.free(neighbour);
  this->core.trim();
  this->core.free(neighbour);
  EXPECT_EQ(this->core.invalid_frees(), 10);
  EXPECT_EQ(this->core.stats().blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, TheSinkHearsEverythingInOrder) {
  RecordingSink sink;
  this->core.set_sink(&sink);
  void* first = nullptr;
  {
    const ScopedOp op(4);
    first = this->allocate(1000);
  }
  void* const second = this->allocate(100'000);
  {
    const ScopedOp op(5);
    this->core.free(first);
  }
  this->core.free(second);
  this->core.free(second);  // invalid: nothing to hear
  this->core.set_sink(nullptr);
  this->core.free(this->allocate(64));

  ASSERT_EQ(sink.heard.size(), 4u);
  const std::array<bool, 4> allocs{true, true, false, false};
  const std::array<void*, 4> addresses{first, second, first, second};
  const std::array<int32_t, 4> ops{4, -1, 5, -1};
  const std::array<int64_t, 4> requested{1000, 100'000, 1000, 100'000};
  const std::array<int64_t, 4> rounded{1024, 102'400, 1024, 102'400};
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
    explicit Prying(CachingCore& core) : core_(core) {}
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
    CachingCore& core_;
    bool inside_ = false;
  };
  Prying sink(this->core);
  this->core.set_sink(&sink);
  for (const size_t bytes : {size_t{100}, size_t{50'000}}) this->core.free(this->allocate(bytes));
  this->core.set_sink(nullptr);
  EXPECT_FALSE(sink.handed_out_early);
  EXPECT_EQ(this->core.invalid_frees(), 2);
  EXPECT_EQ(this->core.stats().blocks.current, 0);
}

TYPED_TEST_P(AllocatorContract, TheSameSequenceGivesTheSameStatisticsOnAnyBackend) {
  for (const int64_t limit : {CachingCore::kNoLimit, 8 * kMiB}) {
    for (const int64_t target : {CachingCore::kNoLimit, 6 * kMiB, int64_t{0}}) {
      CachingCore mine(TypeParam::make());
      CachingCore counted(make_counting_backend());
      for (CachingCore* each : {&mine, &counted}) {
        each->set_limit(limit);
        each->set_reserved_target(target);
      }
      const CoreStats a = live_randomly(mine, 23, 6000, 60);
      const CoreStats b = live_randomly(counted, 23, 6000, 60);
      EXPECT_EQ(a.requested.peak, b.requested.peak);
      EXPECT_EQ(a.rounded.peak, b.rounded.peak);
      EXPECT_EQ(a.reserved.peak, b.reserved.peak);
      EXPECT_EQ(a.failures, b.failures);
      // Where there is room for it, a backend that moves pages keeps what is left over.
      const bool room = target != 0 && std::min(limit, target) != CachingCore::kNoLimit;
      if (room) continue;
      EXPECT_EQ(a.reserved.current, b.reserved.current);
      EXPECT_EQ(a.segment_acquires, b.segment_acquires);
      EXPECT_EQ(a.segment_returns, b.segment_returns);
    }
  }
}

// What is left over of an exchange was kept to the byte, unmapped to the page: the rest was lost.
TYPED_TEST_P(AllocatorContract, ATargetBetweenTwoPagesIsHeldInPages) {
  this->core.set_reserved_target(3 * kMiB + 1234);
  for (uint32_t seed = 1; seed < 20; ++seed) {
    const CoreStats stats = live_randomly(this->core, seed, 300, 20);
    EXPECT_EQ(stats.reserved.current % 4096, 0) << "seed " << seed;
    EXPECT_EQ(stats.reserved.peak % 4096, 0) << "seed " << seed;
  }
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
  this->core.set_sink(&sink);
  this->core.set_limit(32 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &wrong] {
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<std::pair<char*, size_t>> live;
      for (int i = 0; i < 4000; ++i) {
        if (live.size() < 12 && (live.empty() || random() % 2 == 0)) {
          const size_t bytes = random_size(random);
          auto* const block = static_cast<char*>(this->core.allocate(bytes));
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
          this->core.free(block);
          live.pop_back();
        }
      }
      for (const auto& [block, bytes] : live) this->core.free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  this->core.set_sink(nullptr);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sink.bytes, 0);
  const CoreStats stats = this->core.stats();
  EXPECT_EQ(stats.requested.current, 0);
  EXPECT_EQ(stats.blocks.current, 0);
  EXPECT_LE(stats.reserved.peak, 32 * kMiB);
  EXPECT_EQ(stats.cached, stats.reserved.current);
  EXPECT_EQ(this->core.invalid_frees(), 0);
}

REGISTER_TYPED_TEST_SUITE_P(AllocatorContract, AlignsEveryBlockTo64Bytes, LiveBlocksNeverOverlap,
                            AFreedBlockIsUsedAgain, StatisticsAgreeWithAShadowToTheByte,
                            ReservedIsExactForLargeBlocks, PeaksStartAgainFromWhatIsLive,
                            EmptySlabsAreGivenBack, AnEmptySlabServesAnotherSize, FewHalfEmptySlabs,
                            NearSizesShareSegmentsOnlyWithoutABudget, TheLimitIsNeverCrossed,
                            TheCacheGoesBeforeAnybodyIsAsked, TheHandlerIsAskedUntilItFits,
                            FailsWhenNothingIsLeftToFree, WhatCanNeverFitEvictsNothing,
                            AnAllocationInsideTheHandlerDoesNotAskAgain,
                            ReservedStaysAtTheTargetWhileLiveBytesAllowIt,
                            ATargetBetweenTwoPagesIsHeldInPages,
                            LoweringLimitOrTargetGivesTheCacheBackAtOnce,
                            ZeroAndHugeRequestsGiveNull, InvalidFreesAreCountedAndIgnored,
                            TheSinkHearsEverythingInOrder, AFreeIsReportedBeforeTheBlockIsAvailable,
                            TheSameSequenceGivesTheSameStatisticsOnAnyBackend, ThreadsShareOneCore);

}  // namespace lowtide::hooks
