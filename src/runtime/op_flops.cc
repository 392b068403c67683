#include "runtime/op_flops.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "runtime/geometry.h"

namespace lowtide::runtime {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Sizes of a tensor argument; empty where there is none, or none with sizes to read.
c10::IntArrayRef sizes_of(Arguments arguments, size_t index) {
  if (index >= arguments.size() || !arguments[index].isTensor()) return {};
  const at::Tensor& tensor = arguments[index].toTensor();
  return is_plain(tensor) ? tensor.sizes() : c10::IntArrayRef();
}

// [..., m, k] times [..., k, n]; a vector counts as a matrix of one column.
int64_t product(Arguments arguments, size_t first) {
  const c10::IntArrayRef a = sizes_of(arguments, first);
  const c10::IntArrayRef b = sizes_of(arguments, first + 1);
  if (a.empty() || b.empty()) return 0;
  const int64_t columns = b.size() == 1 ? 1 : b.back();
  return 2 * c10::multiply_integers(a) * columns;
}

// Of a convolution, by the positions of the side that the kernel slides over.
int64_t convolution(c10::IntArrayRef positions, c10::IntArrayRef weight) {
  if (positions.size() < 3 || weight.size() < 3) return 0;
  // Weight [out, in / groups, kernel...]: each position of each sample meets all of it once.
  const int64_t samples_and_places = positions[0] * c10::multiply_integers(positions.slice(2));
  return 2 * samples_and_places * c10::multiply_integers(weight);
}

// aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding,
// groups), and aten::convolution_overrideable and mkldnn_convolution with fewer of them.
int64_t convolution_forward(Arguments arguments, bool transposed) {
  const c10::IntArrayRef input = sizes_of(arguments, 0);
  const c10::IntArrayRef weight = sizes_of(arguments, 1);
  if (input.size() < 3 || input.size() != weight.size()) return 0;
  if (transposed) return convolution(input, weight);
  const auto list = [&](size_t index, size_t dimension, int64_t otherwise) {
    if (index >= arguments.size() || !arguments[index].isIntList()) return otherwise;
    const auto values = arguments[index].toIntVector();
    if (values.empty()) return otherwise;
    return values[std::min(dimension, values.size() - 1)];
  };
  c10::SmallVector<int64_t, 5> output(input.begin(), input.end());
  for (size_t d = 2; d < input.size(); ++d) {
    const int64_t reach = list(5, d - 2, 1) * (weight[d] - 1) + 1;
    const int64_t stride = std::max<int64_t>(list(3, d - 2, 1), 1);
    output[d] = std::max<int64_t>((input[d] + 2 * list(4, d - 2, 0) - reach) / stride + 1, 0);
  }
  return convolution(output, weight);
}

// aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
// transposed, output_padding, groups, output_mask): one convolution for each gradient asked for.
int64_t convolution_backward(Arguments arguments) {
  const bool transposed = arguments.size() > 7 && arguments[7].isBool() && arguments[7].toBool();
  const int64_t one = convolution(sizes_of(arguments, transposed ? 1 : 0), sizes_of(arguments, 2));
  if (arguments.size() < 11 || !arguments[10].isBoolList()) return 2 * one;
  const auto mask = arguments[10].toBoolList();
  return one *
         ((mask.size() > 0 && mask.get(0) ? 1 : 0) + (mask.size() > 1 && mask.get(1) ? 1 : 0));
}

// Query [batch, heads, s, d], key [.., t, d], value [.., t, v]: scores and their use.
int64_t attention(Arguments arguments, size_t query) {
  const c10::IntArrayRef q = sizes_of(arguments, query);
  const c10::IntArrayRef k = sizes_of(arguments, query + 1);
  const c10::IntArrayRef v = sizes_of(arguments, query + 2);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return 0;
  return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3]);
}

}  // namespace

int64_t flops_of(const OpInfo& info, Arguments arguments) {
  std::string_view name = info.name;
  name = name.substr(0, name.find('.'));
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is({"aten::mm", "aten::bmm", "aten::mv", "aten::dot"})) return product(arguments, 0);
  if (is({"aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::addmv",
          "aten::_addmm_activation"})) {
    return product(arguments, 1);
  }
  if (is({"aten::convolution", "aten::_convolution", "aten::convolution_overrideable"})) {
    const bool transposed = arguments.size() > 6 && arguments[6].isBool() && arguments[6].toBool();
    return convolution_forward(arguments, transposed);
  }
  if (is({"aten::convolution_backward", "aten::convolution_backward_overrideable"})) {
    return convolution_backward(arguments);
  }
  if (name.find("scaled_dot_product") != std::string_view::npos) {
    // The backward has five products where the forward has two; its first argument is the gradient.
    return name.find("backward") == std::string_view::npos ? attention(arguments, 0)
                                                           : attention(arguments, 1) * 5 / 2;
  }
  return 0;
}

}  // namespace lowtide::runtime
