// Instructions with something behind them: random draws, running statistics, kernels with scratch.
#include <ATen/ATen.h>

#include <tuple>

#include "random/machine.h"

namespace lowtide::testing {
namespace {

at::Tensor batch_norm(Machine& m, const at::Tensor& x) {
  return at::batch_norm(x, m.bias, m.bias, m.running_mean, m.running_var, !m.evaluating, 0.1, 1e-5,
                        false);
}

constexpr InstructionKind kStateInstructions[] = {
    {"dropout", 4, false,
     [](Machine& m, Operands o) { m.push(at::dropout(m.get(o.a), 0.3, true), o.c); }},
    {"noise", 2, false,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a);
       m.push(a * (1 + 0.1 * at::randn_like(a)), o.c);
     }},
    {"uniform", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a) * at::rand({kRows, kColumns}), o.c); }},
    {"filled_uniform_", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).sin() * at::empty({kRows, kColumns}).uniform_(0.5, 1.5), o.c);
     }},
    {"bernoulli_by_hand", 2, false,
     [](Machine& m, Operands o) {
       const at::Tensor mask = at::bernoulli(at::full({kRows, kColumns}, 0.6), m.generator);
       m.push(m.get(o.a) * mask, o.c);
     }},
    {"normal_by_hand", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).tanh() + at::normal(0.0, 0.3, {kRows, kColumns}, m.generator), o.c);
     }},
    {"permuted", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).index_select(0, at::randperm(kRows)).sin(), o.c);
     }},
    {"attention_dropout", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor q = m.get(o.a).reshape({2, 2, 32, 48});
       m.push(at::scaled_dot_product_attention(q, q, q, {}, 0.25).reshape({kRows, kColumns}), o.c);
     }},
    {"batch_norm", 3, false,
     [](Machine& m, Operands o) { m.push(batch_norm(m, m.get(o.a)), o.c); }},
    {"evaluate_from_here", 1, false, [](Machine& m, Operands) { m.evaluating = true; }},
    {"train_from_here", 1, false, [](Machine& m, Operands) { m.evaluating = false; }},
    {"rrelu", 1, false,
     [](Machine& m, Operands o) { m.push(at::rrelu(m.get(o.a), 0.1, 0.3, true), o.c); }},
    {"lstm", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor x = m.get(o.a).reshape({8, 8, kColumns});
       const at::Tensor state = at::zeros({1, 8, kColumns});
       const auto [out, h, c] =
           at::lstm(x, {state, state}, m.lstm, true, 1, 0.0, true, false, false);
       m.push(out.reshape({kRows, kColumns}), o.c);
     }},
    {"bag", 1, false,
     [](Machine& m, Operands o) {
       const at::Tensor rows =
           (m.get(o.a).slice(1, 0, 4).detach().abs() * 29).to(at::kLong).remainder(40).flatten();
       const at::Tensor offsets = at::arange(0, kRows * 4, 4);
       m.push(std::get<0>(at::embedding_bag(m.table, rows, offsets, false, o.b % 3)), o.c);
     }},
};

}  // namespace

std::span<const InstructionKind> state_instructions() { return kStateInstructions; }

}  // namespace lowtide::testing
