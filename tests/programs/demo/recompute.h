// Recompute by hand, as a careful user writes it without Lowtide: the block runs without a graph in
// forward, keeps only its inputs, and runs again in backward with the generators put back. It is
// the peer that Lowtide's peak, time and instructions are compared with. Results are bit-identical
// to plain where a block uses each parameter once: gradients of several uses would be summed in
// another order.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lowtide::demo {

using Tensors = std::vector<at::Tensor>;
using Region = std::function<Tensors(const Tensors&)>;

// `region(inputs)`. Parameters that `region` uses get their gradients accumulated directly while
// backward runs it again. At least one input must require a gradient. `state`: buffers that
// `region` writes (running statistics); the second run's writes to them are taken back.
[[nodiscard]] Tensors recompute_in_backward(Region region, const Tensors& inputs,
                                            Tensors state = {});

}  // namespace lowtide::demo
