#include "contract/allocator_contract.h"

namespace lowtide::hooks {
namespace {

struct Counting {
  static std::unique_ptr<Backend> make() { return make_counting_backend(); }
  static constexpr bool kTouchable = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Counting, AllocatorContract, Counting);

}  // namespace
}  // namespace lowtide::hooks
