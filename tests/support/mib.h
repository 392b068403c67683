// A unit that sizes in tests are counted in.
#pragma once

#include <cstdint>

namespace lowtide {

inline constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace lowtide
