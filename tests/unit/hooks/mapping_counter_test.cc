// The product's reserved bytes against an independent count of its mappings.
#include "counting/mapping_counter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <vector>

#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"

namespace lowtide::hooks {
namespace {

using counting::mapped_bytes;
using counting::reset_mapped_peak;

TEST(MappingCounter, OthersMappingsDoNotCount) {
  const int64_t before = mapped_bytes().current;
  void* const mine =
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(mapped_bytes().current, before);
  munmap(mine, 1 << 20);
  EXPECT_EQ(mapped_bytes().current, before);
}

TEST(MappingCounter, SeesEveryByteOfTheCpuBackend) {
  const auto backend = make_cpu_backend();
  const int64_t before = mapped_bytes().current;
  reset_mapped_peak();
  void* const a = backend->acquire(4096 * 3);
  void* const b = backend->acquire(1 << 20);
  EXPECT_EQ(mapped_bytes().current - before, 4096 * 3 + (1 << 20));
  munmap(static_cast<char*>(b) + 8192, 4096);  // whoever unmaps part of it
  EXPECT_EQ(mapped_bytes().current - before, 4096 * 2 + (1 << 20));
  backend->give_back(b, 1 << 20);
  backend->give_back(a, 4096 * 3);
  EXPECT_EQ(mapped_bytes().current, before);
  EXPECT_EQ(mapped_bytes().peak - before, 4096 * 3 + (1 << 20));
}

TEST(MappingCounter, AgreesWithReservedToTheByte) {
  const int64_t before = mapped_bytes().current;
  {
    CachingCore core(make_cpu_backend());
    core.set_limit(16 << 20);
    reset_mapped_peak();
    std::mt19937 random(4);
    std::vector<void*> live;
    for (int i = 0; i < 20'000; ++i) {
      if (live.empty() || (live.size() < 60 && random() % 2 == 0)) {
        const size_t bytes = 1 + random() % (random() % 2 == 0 ? 10'000 : 1'000'000);
        void* const block = core.allocate(bytes);
        if (block != nullptr) live.push_back(block);
      } else {
        std::swap(live[random() % live.size()], live.back());
        core.free(live.back());
        live.pop_back();
      }
      ASSERT_EQ(mapped_bytes().current - before, core.stats().reserved.current);
    }
    EXPECT_EQ(mapped_bytes().peak - before, core.stats().reserved.peak);
    EXPECT_GT(core.stats().segment_returns, 0);
  }
  EXPECT_EQ(mapped_bytes().current, before);
}

}  // namespace
}  // namespace lowtide::hooks
