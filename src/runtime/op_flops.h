// Floating-point operations of an operator call, from the sizes of its arguments: two for each
// multiply-add of matrix products, convolutions and attention, as torch.utils.flop_counter counts
// them; 0 for every other operator. Reads sizes only. Thread-safe, throws nothing of its own.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "runtime/op_info.h"

namespace lowtide::runtime {

[[nodiscard]] int64_t flops_of(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace lowtide::runtime
