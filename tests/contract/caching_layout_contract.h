// What a CachingCore promises of its own layout, whatever backend it stands on: slabs, segments of
// one large block each, the reserved target. A backend's own file defines a type with `static
// std::unique_ptr<Backend> make()` and instantiates the suite with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "contract/allocator_contract.h"
#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "support/mib.h"

namespace lowtide::hooks {

template <typename Source>
class CachingLayout : public ::testing::Test {
 protected:
  void* allocate(size_t bytes) {
    void* const block = core.allocate(bytes);
    EXPECT_NE(block, nullptr) << bytes << " bytes";
    return block;
  }

  CachingCore core{Source::make()};
};

TYPED_TEST_SUITE_P(CachingLayout);

TYPED_TEST_P(CachingLayout, ReservedIsExactForLargeBlocks) {
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
  EXPECT_EQ(this->core.stats().alloc_calls, 2);
  EXPECT_EQ(this->core.stats().free_calls, 2);
  EXPECT_EQ(this->core.trim(), both);
  EXPECT_EQ(this->core.stats().reserved.current, 0);
  EXPECT_EQ(this->core.stats().reserved.peak, both);
}

TYPED_TEST_P(CachingLayout, EmptySlabsAreGivenBack) {
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

TYPED_TEST_P(CachingLayout, AnEmptySlabServesAnotherSize) {
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
TYPED_TEST_P(CachingLayout, FewHalfEmptySlabs) {
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

TYPED_TEST_P(CachingLayout, NearSizesShareSegmentsOnlyWithoutABudget) {
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

TYPED_TEST_P(CachingLayout, ReservedStaysAtTheTargetWhileLiveBytesAllowIt) {
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

TYPED_TEST_P(CachingLayout, LoweringLimitOrTargetGivesTheCacheBackAtOnce) {
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

TYPED_TEST_P(CachingLayout, TheSameSequenceGivesTheSameStatisticsOnAnyBackend) {
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
TYPED_TEST_P(CachingLayout, ATargetBetweenTwoPagesIsHeldInPages) {
  this->core.set_reserved_target(3 * kMiB + 1234);
  for (uint32_t seed = 1; seed < 20; ++seed) {
    const CoreStats stats = live_randomly(this->core, seed, 300, 20);
    EXPECT_EQ(stats.reserved.current % 4096, 0) << "seed " << seed;
    EXPECT_EQ(stats.reserved.peak % 4096, 0) << "seed " << seed;
  }
}

TYPED_TEST_P(CachingLayout, OnlyTheBestFittingOfTheCacheGoes) {
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

TYPED_TEST_P(CachingLayout, TheHandlerHearsWhatIsMissing) {
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

REGISTER_TYPED_TEST_SUITE_P(CachingLayout, ReservedIsExactForLargeBlocks, EmptySlabsAreGivenBack,
                            AnEmptySlabServesAnotherSize, FewHalfEmptySlabs,
                            NearSizesShareSegmentsOnlyWithoutABudget,
                            ReservedStaysAtTheTargetWhileLiveBytesAllowIt,
                            LoweringLimitOrTargetGivesTheCacheBackAtOnce,
                            TheSameSequenceGivesTheSameStatisticsOnAnyBackend,
                            ATargetBetweenTwoPagesIsHeldInPages, OnlyTheBestFittingOfTheCacheGoes,
                            TheHandlerHearsWhatIsMissing);

}  // namespace lowtide::hooks
