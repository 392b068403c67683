#include "contract/caching_layout_contract.h"

namespace lowtide::hooks {
namespace {

struct Counting {
  using Core = CachingCore;
  static std::unique_ptr<Backend> make() { return make_counting_backend(); }
  static std::unique_ptr<Core> make_core() { return std::make_unique<Core>(make()); }
  static constexpr bool kTouchable = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Counting, AllocatorContract, Counting);
INSTANTIATE_TYPED_TEST_SUITE_P(Counting, CachingLayout, Counting);

}  // namespace
}  // namespace lowtide::hooks
