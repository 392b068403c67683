// A library of kernels as extensions ship them: compiled on its own, called with raw pointers. No
// dispatcher, no operator, no version counter knows of them.
#pragma once

#include <cstddef>

namespace lowtide::testing {

// out[i] = factor * in[i] + 0.5; `out` may be `in`.
void opaque_scale(float* out, const float* in, size_t count, float factor);

}  // namespace lowtide::testing
