#include "contract/caching_layout_contract.h"

namespace lowtide::hooks {
namespace {

struct Cpu {
  using Core = CachingCore;
  static std::unique_ptr<Backend> make() { return make_cpu_backend(); }
  static std::unique_ptr<Core> make_core() { return std::make_unique<Core>(make()); }
  static constexpr bool kTouchable = true;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, AllocatorContract, Cpu);
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, CachingLayout, Cpu);

}  // namespace
}  // namespace lowtide::hooks
