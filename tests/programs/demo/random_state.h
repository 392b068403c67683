// The state of the generators that training on a device draws from: the CPU's, and the device's
// own.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lowtide::demo {

[[nodiscard]] std::vector<at::Tensor> random_state(c10::Device device);
void set_random_state(c10::Device device, const std::vector<at::Tensor>& states);

}  // namespace lowtide::demo
