// Instructions that only compute: elementwise, reductions, products, views, several results.
#include <ATen/ATen.h>

#include <tuple>

#include "random/machine.h"

namespace lowtide::testing {
namespace {

constexpr InstructionKind kValueInstructions[] = {
    {"sin", 3, false, [](Machine& m, Operands o) { m.push(m.get(o.a).sin(), o.c); }},
    {"tanh", 2, false, [](Machine& m, Operands o) { m.push(m.get(o.a).tanh(), o.c); }},
    {"exp", 2, false, [](Machine& m, Operands o) { m.push(m.get(o.a).clamp(-1, 1).exp(), o.c); }},
    {"gelu", 2, false, [](Machine& m, Operands o) { m.push(at::gelu(m.get(o.a)), o.c); }},
    {"relu", 1, false, [](Machine& m, Operands o) { m.push(m.get(o.a).relu(), o.c); }},
    {"softmax", 2, false, [](Machine& m, Operands o) { m.push(m.get(o.a).softmax(1), o.c); }},
    {"log_softmax", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).log_softmax(0) * 0.1, o.c); }},
    {"mul", 4, false, [](Machine& m, Operands o) { m.push(m.get(o.a) * m.get(o.b).sin(), o.c); }},
    {"square", 1, false, [](Machine& m, Operands o) { m.push(m.get(o.a).tanh().pow(2), o.c); }},
    {"add", 3, false, [](Machine& m, Operands o) { m.push((m.get(o.a) + m.get(o.b)) * 0.7, o.c); }},
    {"sub", 1, false, [](Machine& m, Operands o) { m.push(m.get(o.a) - m.get(o.b), o.c); }},
    {"where", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a);
       m.push(at::where(a > 0.1, a, m.get(o.b)), o.c);
     }},
    {"lerp", 1, false,
     [](Machine& m, Operands o) {
       m.push(at::lerp(m.get(o.a), m.get(o.b), m.get(o.c).sigmoid()), o.c);
     }},
    {"mm", 4, false, [](Machine& m, Operands o) { m.push(m.get(o.a).tanh().mm(m.weight), o.c); }},
    {"linear", 2, false,
     [](Machine& m, Operands o) { m.push(at::linear(m.get(o.a).tanh(), m.weight, m.bias), o.c); }},
    {"mm_transposed", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).sin().matmul(m.weight.t()), o.c); }},
    {"bmm", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a).reshape({4, 16, kColumns}).tanh();
       m.push(at::bmm(at::bmm(a, a.transpose(1, 2)) * 0.05, a).reshape({kRows, kColumns}), o.c);
     }},
    {"attention", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor q = m.get(o.a).reshape({2, 2, 32, 48});
       const at::Tensor k = m.get(o.b).reshape({2, 2, 32, 48});
       const at::Tensor out = at::scaled_dot_product_attention(q, k, q, {}, 0.0, (o.c & 1) != 0);
       m.push(out.reshape({kRows, kColumns}), o.c);
     }},
    {"convolution", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a).reshape({4, 16, kColumns});
       m.push(at::conv1d(a, m.kernel, {}, 1, 1).reshape({kRows, kColumns}), o.c);
     }},
    {"pooling", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a).reshape({1, 16, 24, 16});
       const at::Tensor p = std::get<0>(at::max_pool2d_with_indices(a, 2, 2));
       m.push(at::upsample_nearest2d(p, {24, 16}).reshape({kRows, kColumns}), o.c);
     }},
    {"layer_norm", 2, false,
     [](Machine& m, Operands o) {
       m.push(at::layer_norm(m.get(o.a), {kColumns}, m.bias, m.bias), o.c);
     }},
    {"lookup", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor rows =
           (m.get(o.a).select(1, o.b % kColumns).detach().abs() * 37).to(at::kLong).remainder(40);
       m.push(at::embedding(m.table, rows).tanh(), o.c);
     }},
    {"row_statistics", 1, false,
     [](Machine& m, Operands o) {
       const auto [var, mean] = at::var_mean(m.get(o.a), {1}, true, true);
       m.push((m.get(o.b) - mean) / (var + 1).sqrt(), o.c);
     }},
    {"expanded_mean", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).mean(0).sin().expand({kRows, kColumns}), o.c);
     }},
    {"sorted", 1, false,
     [](Machine& m, Operands o) { m.push(std::get<0>(m.get(o.a).sort(1)), o.c); }},
    {"largest", 1, false,
     [](Machine& m, Operands o) {
       const auto [top, where] = m.get(o.a).topk(32, 1);
       m.push(m.get(o.b).scatter_add(1, where, top.sin() * 0.3), o.c);
     }},
    {"cumulated", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).cumsum(1) * 0.05, o.c); }},
    {"picked_rows", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor rows = at::arange(kRows).mul(7).add(o.b).remainder(kRows);
       m.push(m.get(o.a).index_select(0, rows), o.c);
     }},
    {"masked", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a);
       const at::Tensor mask = m.get(o.b).detach() > 0;
       m.push(at::zeros({kRows, kColumns}).masked_scatter(mask, a.index({mask}).sin()), o.c);
     }},
    {"halves", 1, false,
     [](Machine& m, Operands o) {
       const auto halves = m.get(o.a).chunk(2, 1);
       m.push(at::cat({halves[1].exp().log1p(), halves[0].sin()}, 1), o.c);
     }},
    {"stacked", 1, false,
     [](Machine& m, Operands o) {
       m.push(at::stack({m.get(o.a), m.get(o.b)}, 0).sigmoid().sum(0), o.c);
     }},
    {"foreach", 1, false,
     [](Machine& m, Operands o) {
       const auto sums = at::_foreach_add({m.get(o.a), m.get(o.b)}, {m.get(o.b), m.get(o.a)}, 0.5);
       m.push(at::_foreach_sigmoid(sums)[o.c & 1], o.c);
     }},
    {"transposed", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).t().contiguous().t(), o.c); }},
    {"view", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).reshape({kColumns, kRows}).flatten().view({kRows, kColumns}), o.c);
     }},
    {"window", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor twice = at::cat({m.get(o.a), m.get(o.b)}, 0);
       m.push(twice.narrow(0, o.c % kRows, kRows), o.c);
     }},
    {"strided", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).contiguous().as_strided({kRows, kColumns}, {48, 1}, o.b % 48).sin(), o.c);
     }},
    {"fourier", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor f = at::fft_rfft(m.get(o.a));
       m.push(at::fft_irfft(f * f.conj() * 0.01, kColumns).tanh(), o.c);
     }},
    {"half_precision", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor low = m.get(o.a).to(at::kBFloat16).tanh();
       m.push(low.mm(m.weight.to(at::kBFloat16)).to(at::kFloat), o.c);
     }},
};

}  // namespace

std::span<const InstructionKind> value_instructions() { return kValueInstructions; }

}  // namespace lowtide::testing
