#include "support/opaque_kernels.h"

namespace lowtide::testing {

void opaque_scale(float* out, const float* in, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = factor * in[i] + 0.5F;
  }
}

}  // namespace lowtide::testing
