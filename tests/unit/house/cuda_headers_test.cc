// The CUDA, CUPTI and NVTX headers that the build found are there, fit each other, and are of the
// major version that torch 2.15 and 2.11 are built with.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

static_assert(CUDART_VERSION >= 13000 && CUDART_VERSION < 14000, "CUDA 13 headers");
static_assert(CUPTI_API_VERSION >= 130000 && CUPTI_API_VERSION < 140000, "CUPTI 13 headers");
static_assert(NVTX_VERSION >= 3, "NVTX 3 headers");

// The external-correlation kind that ops are tagged with (a toolkit that drops it must be noticed).
TEST(CudaHeaders, HaveTheActivityApiThatTheProfilerUses) {
  EXPECT_NE(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, CUPTI_EXTERNAL_CORRELATION_KIND_INVALID);
  CUpti_ActivityExternalCorrelation record{};
  record.externalId = uint64_t{7} << 40;
  EXPECT_EQ(record.externalId >> 40, 7u);
}
