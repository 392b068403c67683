// Recompute by hand, as a careful user writes it without Lowtide: the block runs without a graph in
// forward, keeps only its input, and runs again in backward with the generators put back. It is the
// peer that Lowtide's smallest reachable peak is compared with. Results are bit-identical to plain.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace lowtide::demo {

using Region = std::function<at::Tensor(const at::Tensor&)>;

// `region(input)`. Parameters that `region` uses get their gradients accumulated directly while
// backward runs it again. `input` must require a gradient.
[[nodiscard]] at::Tensor recompute_in_backward(Region region, const at::Tensor& input);

}  // namespace lowtide::demo
