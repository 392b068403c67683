// Door B without torch: its C functions over the CUDA double.
#include "hooks/pluggable_door.h"

#include <nlohmann/json.hpp>

#include <string>

#include "core/error.h"
#include "doubles/cuda/cuda_double_fixture.h"

namespace lowtide::hooks {
namespace {

using ::testing::HasSubstr;

class PluggableDoor : public cuda_double_test::CudaDouble {
 protected:
  static constexpr ssize_t kMiB = cuda_double_test::kMiB;

  void TearDown() override {
    lowtide_set_memory_limit(-1, 0);
    lowtide_empty_cache();
    EXPECT_EQ(figure("allocated_bytes.all.current"), 0);
    EXPECT_EQ(figure("reserved_bytes.all.current"), 0);
    EXPECT_EQ(misuse(nullptr), 0u) << lowtide_double_first_misuse(nullptr);
    CudaDouble::TearDown();
  }
  static int64_t figure(const char* name) {
    return nlohmann::json::parse(lowtide_stats_json(0)).at(name).get<int64_t>();
  }
};

TEST_F(PluggableDoor, GivesTakesAndCounts) {
  EXPECT_EQ(lowtide_malloc(0, 0, one_), nullptr);
  lowtide_free(nullptr, 0, 0, one_);
  void* const block = lowtide_malloc(3 * kMiB + 1, 0, one_);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(figure("requested_bytes.all.current"), 3 * kMiB + 1);
  EXPECT_EQ(figure("allocated_bytes.large_pool.current"), 3 * kMiB + 512);
  EXPECT_EQ(figure("reserved_bytes.all.current"), 20 * kMiB);
  EXPECT_EQ(figure("num_device_alloc"), figure("num_device_free") + 1);
  size_t bytes = 0;
  EXPECT_EQ(lowtide_base_allocation(block, &bytes), block);
  EXPECT_EQ(bytes, static_cast<size_t>(20 * kMiB));
  lowtide_free(block, 3 * kMiB + 1, 0, one_);
  EXPECT_EQ(lowtide_malloc(3 * kMiB, 0, one_), block);
  lowtide_free(block, 0, 0, nullptr);
  lowtide_empty_cache();
  lowtide_reset_peak_stats(0);
  lowtide_reset_accumulated_stats(0);
  EXPECT_EQ(figure("allocated_bytes.all.peak"), 0);
  EXPECT_EQ(figure("allocated_bytes.all.allocated"), 0);
}

TEST_F(PluggableDoor, RecordedStreamsHoldABlock) {
  lowtide_double_set_delay(cuda_double_test::kNever);
  void* const block = lowtide_malloc(3 * kMiB, 0, one_);
  lowtide_double_touch(block, 3 * kMiB, two_);
  lowtide_record_stream(block, two_);
  lowtide_free(block, 3 * kMiB, 0, one_);
  EXPECT_EQ(figure("lowtide.waiting_bytes"), 3 * kMiB);
  void* const other = lowtide_malloc(3 * kMiB, 0, one_);
  EXPECT_NE(other, block);
  lowtide_free(other, 3 * kMiB, 0, one_);
  lowtide_record_stream(nullptr, two_);
}

TEST_F(PluggableDoor, AFailureSaysWhyAndLeavesCudasError) {
  ASSERT_EQ(lowtide_set_memory_limit(8 * kMiB, 0), 0);
  void* const block = lowtide_malloc(6 * kMiB, 0, one_);
  EXPECT_EQ(lowtide_malloc_or_null(4 * kMiB, 0, one_), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_THAT(lowtide_last_error(),
              HasSubstr("cannot allocate 4.0 MiB on the GPU within the limit"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(lowtide_malloc(5 * kMiB, 0, one_), nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("lowtide: cannot allocate 5.0 MiB"));
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(lowtide_malloc_or_null(-1, 0, one_), nullptr);
  EXPECT_EQ(figure("lowtide.limit_bytes"), 8 * kMiB);
  EXPECT_EQ(figure("num_ooms"), 3);
  lowtide_free(block, 6 * kMiB, 0, one_);
  lowtide_reset_accumulated_stats(0);
}

TEST_F(PluggableDoor, AFractionIsALimit) {
  lowtide_double_set_memory(0, 64 * kMiB);
  lowtide_set_memory_fraction(0.25, 0);
  EXPECT_EQ(figure("lowtide.limit_bytes"), 16 * kMiB);
  EXPECT_EQ(lowtide_malloc_or_null(17 * kMiB, 0, one_), nullptr);
  lowtide_set_memory_fraction(1.0, 0);
  EXPECT_EQ(figure("lowtide.limit_bytes"), INT64_MAX);
  void* const block = lowtide_malloc(17 * kMiB, 0, one_);
  EXPECT_NE(block, nullptr);
  lowtide_free(block, 17 * kMiB, 0, one_);
}

// Also as the first call of all, when there is no core yet that could count them.
TEST_F(PluggableDoor, UnknownPointersAreCountedAndSaidOnce) {
  int host = 0;
  const int64_t before = figure("lowtide.invalid_frees");
  const uint64_t frees = lowtide_double_calls("cudaFree");
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) lowtide_free(&host, 4, 0, one_);
  lowtide_record_stream(&host, two_);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("no live block of lowtide_malloc"));
  EXPECT_EQ(said.find("lowtide:"), said.rfind("lowtide:"));
  EXPECT_EQ(figure("lowtide.invalid_frees"), before + 3);
  EXPECT_EQ(lowtide_double_calls("cudaFree"), frees);
  lowtide_free(lowtide_malloc(kMiB, 0, one_), kMiB, 0, one_);
  EXPECT_EQ(figure("lowtide.invalid_frees"), before + 3);
}

TEST_F(PluggableDoor, DevicesThatAreNotThereAreNamed) {
  for (const int device : {-1, 1, 64, 1 << 20}) {
    EXPECT_EQ(lowtide_malloc_or_null(kMiB, device, one_), nullptr);
    EXPECT_THAT(lowtide_last_error(), HasSubstr("device " + std::to_string(device)));
    EXPECT_EQ(lowtide_set_memory_limit(kMiB, device), -1);
    EXPECT_NE(std::string(lowtide_stats_json(device)).find("\"num_ooms\": 0"), std::string::npos);
    lowtide_set_memory_fraction(0.5, device);
    lowtide_end_allocate_to_pool(device, {0, 1});
    lowtide_release_pool(device, {0, 1});
  }
}

TEST_F(PluggableDoor, AGraphsPoolIsItsOwn) {
  lowtide_begin_allocate_to_pool(0, {7, 0}, [this](CUstream_st* s) { return s == one_; });
  void* const inside = lowtide_malloc(kMiB, 0, one_);
  lowtide_free(inside, kMiB, 0, one_);
  lowtide_end_allocate_to_pool(0, {7, 0});
  void* const outside = lowtide_malloc(kMiB, 0, one_);
  EXPECT_NE(outside, inside);
  lowtide_free(outside, kMiB, 0, one_);
  lowtide_empty_cache();
  EXPECT_EQ(figure("reserved_bytes.all.current"), 2 * kMiB);
  lowtide_release_pool(0, {7, 0});
}

// What torch.compile does with CUDA graphs: it would fail later, in torch's words.
TEST_F(PluggableDoor, APoolForAllOfAThreadIsRefused) {
  try {
    lowtide_begin_allocate_to_pool(0, {0, 8}, [](CUstream_st*) { return true; });
    ADD_FAILURE() << "not refused";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("mode=\"reduce-overhead\""));
    EXPECT_THAT(error.what(), HasSubstr("Fix: use Lowtide's door A"));
  }
  void* const block = lowtide_malloc(kMiB, 0, one_);
  lowtide_free(block, kMiB, 0, one_);
  lowtide_empty_cache();
  EXPECT_EQ(figure("reserved_bytes.all.current"), 0) << "no pool was begun";
}

}  // namespace
}  // namespace lowtide::hooks
