#include "hooks/size_classes.h"

#include <gtest/gtest.h>

namespace lowtide::hooks {
namespace {

TEST(SizeClasses, EveryRequestFitsItsClassAndNoSmallerOne) {
  for (size_t bytes = 1; bytes <= 16 * 1024; ++bytes) {
    const uint32_t size_class = size_class_of(bytes);
    ASSERT_LT(size_class, kSizeClassCount) << bytes;
    ASSERT_GE(size_class_bytes(size_class), bytes);
    if (size_class > 0) {
      ASSERT_LT(size_class_bytes(size_class - 1), bytes);
    }
  }
}

TEST(SizeClasses, BlocksAreMultiplesOf64) {
  for (uint32_t i = 0; i < kSizeClassCount; ++i) EXPECT_EQ(size_class_bytes(i) % 64, 0u) << i;
}

TEST(SizeClasses, AtMostAQuarterIsWastedAndLittleOnAverage) {
  double sum = 0;
  for (size_t bytes = 193; bytes <= 16 * 1024; ++bytes) {
    const size_t block = size_class_bytes(size_class_of(bytes));
    const double waste = static_cast<double>(block - bytes) / static_cast<double>(block);
    ASSERT_LE(waste, 0.25) << bytes;
    sum += waste;
  }
  EXPECT_LT(sum / (16 * 1024 - 192), 0.11);
}

TEST(SizeClasses, TheReciprocalDividesEveryOffsetOfASlab) {
  for (const SlabShape& shape : kSlabShapes) {
    for (uint64_t offset = 0; offset < kSlabBytes; ++offset) {
      ASSERT_EQ(offset * shape.reciprocal >> 32, offset / shape.block_bytes) << shape.block_bytes;
    }
  }
}

}  // namespace
}  // namespace lowtide::hooks
