// The GPU's core over the CUDA double, whose memory is the host's but not to be touched.
#include "contract/allocator_contract.h"
#include "doubles/cuda/cuda_double.h"
#include "hooks/backend_cuda.h"
#include "hooks/device_core.h"

namespace lowtide::hooks {
namespace {

struct Cuda {
  using Core = DeviceCore;
  static std::unique_ptr<Core> make_core() { return std::make_unique<Core>(make_cuda_backend(0)); }
  static constexpr bool kTouchable = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, AllocatorContract, Cuda);

}  // namespace
}  // namespace lowtide::hooks
