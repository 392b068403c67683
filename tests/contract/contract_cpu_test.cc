#include "contract/allocator_contract.h"

namespace lowtide::hooks {
namespace {

struct Cpu {
  static std::unique_ptr<Backend> make() { return make_cpu_backend(); }
  static constexpr bool kTouchable = true;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, AllocatorContract, Cpu);

}  // namespace
}  // namespace lowtide::hooks
