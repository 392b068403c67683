#include "hooks/torch_cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "counting/counting_allocator.h"

C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace lowtide::hooks {
namespace {

c10::Allocator* torch_allocator() { return c10::GetAllocator(c10::DeviceType::CPU); }

class TorchCpuAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = torch_allocator();
    TorchCpuAllocator::install();
  }
  void TearDown() override {
    TorchCpuAllocator::core().set_limit(CachingCore::kNoLimit);
    TorchCpuAllocator::set_account({});
    TorchCpuAllocator::set_last_resort({});
    TorchCpuAllocator::uninstall();
    EXPECT_EQ(torch_allocator(), before_);
    EXPECT_EQ(TorchCpuAllocator::core().stats().blocks.current, 0);
    TorchCpuAllocator::core().trim();
  }
  static int64_t requested() { return TorchCpuAllocator::core().stats().requested.current; }

 private:
  c10::Allocator* before_ = nullptr;
};

TEST_F(TorchCpuAllocatorTest, TorchAllocatesFromTheCore) {
  {
    const c10::DataPtr block = torch_allocator()->allocate(1000);
    EXPECT_NE(block.get(), nullptr);
    EXPECT_EQ(block.device(), c10::Device(c10::DeviceType::CPU));
    EXPECT_EQ(requested(), 1000);
  }
  EXPECT_EQ(requested(), 0);
}

TEST_F(TorchCpuAllocatorTest, InstallsNest) {
  c10::Allocator* const ours = torch_allocator();
  TorchCpuAllocator::install();
  EXPECT_EQ(torch_allocator(), ours);
  TorchCpuAllocator::uninstall();
  EXPECT_EQ(torch_allocator(), ours);
  EXPECT_TRUE(TorchCpuAllocator::installed());
}

TEST_F(TorchCpuAllocatorTest, ABlockOutlivesTheInstallation) {
  c10::DataPtr block = torch_allocator()->allocate(1000);
  TorchCpuAllocator::uninstall();
  EXPECT_FALSE(TorchCpuAllocator::installed());
  std::memset(block.get(), 1, 1000);
  EXPECT_EQ(requested(), 1000);
  block.clear();
  EXPECT_EQ(requested(), 0);
  TorchCpuAllocator::install();
}

TEST_F(TorchCpuAllocatorTest, ABlockFromBeforeIsFreedByItsOwnAllocator) {
  TorchCpuAllocator::uninstall();
  c10::DataPtr block = torch_allocator()->allocate(1000);
  TorchCpuAllocator::install();
  block.clear();
  EXPECT_EQ(TorchCpuAllocator::core().invalid_frees(), 0);
}

TEST_F(TorchCpuAllocatorTest, SomebodyElseOnTopStaysAtTheEnd) {
  c10::Allocator* before = nullptr;
  {
    TorchCpuAllocator::uninstall();
    before = torch_allocator();
    TorchCpuAllocator::install();
    c10::Allocator* const ours = torch_allocator();
    const counting::CountingAllocator on_top;
    TorchCpuAllocator::uninstall();
    EXPECT_NE(torch_allocator(), before);
    EXPECT_NE(torch_allocator(), ours);
    EXPECT_NE(torch_allocator()->allocate(64).get(), nullptr);  // still works
  }
  c10::SetAllocator(c10::DeviceType::CPU, before);
  TorchCpuAllocator::install();
}

TEST_F(TorchCpuAllocatorTest, ZeroBytesAreANullBlockOnTheCpu) {
  const c10::DataPtr block = torch_allocator()->allocate(0);
  EXPECT_EQ(block.get(), nullptr);
  EXPECT_TRUE(block.device().is_cpu());
  EXPECT_EQ(TorchCpuAllocator::core().stats().blocks.current, 0);
}

TEST_F(TorchCpuAllocatorTest, RawAllocationsWork) {
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{1} << 20}) {
    void* const block = torch_allocator()->raw_allocate(bytes);
    EXPECT_EQ(requested(), static_cast<int64_t>(bytes));
    torch_allocator()->raw_deallocate(block);
    EXPECT_EQ(requested(), 0);
  }
}

TEST_F(TorchCpuAllocatorTest, CloneCopiesTheBytes) {
  const c10::DataPtr block = torch_allocator()->allocate(64);
  std::memset(block.get(), 7, 64);
  const c10::DataPtr copy = torch_allocator()->clone(block.get(), 64);
  EXPECT_NE(copy.get(), block.get());
  EXPECT_EQ(std::memcmp(copy.get(), block.get(), 64), 0);
}

TEST_F(TorchCpuAllocatorTest, OutOfMemoryIsTorchsErrorWithTheWholeAccount) {
  c10::DataPtr live = torch_allocator()->allocate(1 << 20);
  TorchCpuAllocator::core().set_limit(2 << 20);
  TorchCpuAllocator::set_account([] { return std::string("largest holder: embedding"); });
  try {
    static_cast<void>(torch_allocator()->allocate(3 << 19));
    ADD_FAILURE() << "1.5 MiB fit beside 1 MiB in 2 MiB";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = error.what_without_backtrace();
    for (const char* part :
         {"1.5", "1572864 bytes", "budget 2", "live 1", "cached 0", "largest holder: embedding"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }
  EXPECT_EQ(requested(), 1 << 20);
}

TEST_F(TorchCpuAllocatorTest, TheLastResortIsAskedUntilItFitsOrGivesUp) {
  TorchCpuAllocator::core().set_limit(1 << 20);
  int asked = 0;
  TorchCpuAllocator::set_last_resort([&asked](size_t bytes) {
    EXPECT_EQ(bytes, 3U << 20);
    // Not enough at first.
    TorchCpuAllocator::core().set_limit(++asked < 3 ? asked << 20 : 3 << 20);
    return true;
  });
  EXPECT_NE(torch_allocator()->allocate(3 << 20).get(), nullptr);
  EXPECT_EQ(asked, 3);
  TorchCpuAllocator::core().set_limit(1 << 20);
  TorchCpuAllocator::set_last_resort([](size_t) { return false; });
  EXPECT_THROW(static_cast<void>(torch_allocator()->allocate(3 << 20)), c10::OutOfMemoryError);
}

TEST_F(TorchCpuAllocatorTest, TheProfilerHearsOfBothEnds) {
  class Reporter final : public c10::MemoryReportingInfoBase {
   public:
    void reportMemoryUsage(void* /*block*/, int64_t bytes, size_t total, size_t /*reserved*/,
                           c10::Device /*device*/) override {
      sizes.push_back(bytes);
      totals.push_back(total);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::vector<int64_t> sizes;
    std::vector<size_t> totals;
  };
  const auto reporter = std::make_shared<Reporter>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reporter);
    static_cast<void>(torch_allocator()->allocate(1000));
  }
  static_cast<void>(torch_allocator()->allocate(500));
  EXPECT_EQ(reporter->sizes, (std::vector<int64_t>{1000, -1000}));
  EXPECT_EQ(reporter->totals, (std::vector<size_t>{1000, 0}));
}

TEST_F(TorchCpuAllocatorTest, DebugFillsAreHonoured) {
  const auto first_and_last = [](unsigned char expected) {
    const c10::DataPtr block = torch_allocator()->allocate(300);
    const auto* const data = static_cast<const unsigned char*>(block.get());
    return data[0] == expected && data[299] == expected;
  };
  FLAGS_caffe2_cpu_allocator_do_junk_fill = true;
  EXPECT_TRUE(first_and_last(0xFF));
  FLAGS_caffe2_cpu_allocator_do_junk_fill = false;
  FLAGS_caffe2_cpu_allocator_do_zero_fill = true;
  EXPECT_TRUE(first_and_last(0));
  FLAGS_caffe2_cpu_allocator_do_zero_fill = false;
}

TEST_F(TorchCpuAllocatorTest, AnIndependentCountAgreesToTheByte) {
  const counting::CountingAllocator counter;
  counting::CountingAllocator::reset_peak();
  TorchCpuAllocator::core().reset_peaks();
  std::vector<c10::DataPtr> blocks;
  for (size_t i = 1; i < 200; ++i) {
    blocks.push_back(torch_allocator()->allocate(i * 77));
    if (i % 3 == 0) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i / 5));
    ASSERT_EQ(counting::CountingAllocator::bytes().current, requested());
  }
  blocks.clear();
  EXPECT_EQ(counting::CountingAllocator::bytes().current, 0);
  EXPECT_EQ(counting::CountingAllocator::bytes().peak,
            TorchCpuAllocator::core().stats().requested.peak);
}

}  // namespace
}  // namespace lowtide::hooks
