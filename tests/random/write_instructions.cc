// Instructions that write: in place, through views and aliases, into buffers and partly filled
// memory, with and without autograd's knowledge.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "random/machine.h"

namespace lowtide::testing {
namespace {

// Written only where the program itself has made it: leaves and the batch are no targets.
template <typename Write>
void write_into(Machine& m, uint8_t i, const Write& write) {
  const at::Tensor target = m.get(i);
  if (target.grad_fn() != nullptr || !target.requires_grad()) {
    write(target);
  }
}

constexpr InstructionKind kWriteInstructions[] = {
    {"mul_", 2, true,
     [](Machine& m, Operands o) { write_into(m, o.a, [](const at::Tensor& t) { t.mul_(0.9); }); }},
    {"add_", 2, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) { t.add_(m.get(o.b).detach(), 0.1); });
     }},
    {"sigmoid_", 1, true,
     [](Machine& m, Operands o) { write_into(m, o.a, [](const at::Tensor& t) { t.sigmoid_(); }); }},
    {"clamp_", 1, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [](const at::Tensor& t) { t.clamp_(-1, 1); });
     }},
    {"rows_add_", 2, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) { t.slice(0, o.b % 32, 50).add_(0.1); });
     }},
    {"column_zero_", 1, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) { t.select(1, o.b % kColumns).zero_(); });
     }},
    {"rows_copy_", 1, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) {
         t.slice(0, 0, 20).copy_(m.get(o.b).slice(0, 20, 40).detach().sin());
       });
     }},
    {"index_put_", 1, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) {
         t.index_put_({at::arange(12).mul(3)}, m.get(o.b).slice(0, 0, 12).detach() * 0.5, true);
       });
     }},
    {"masked_fill_", 1, true,
     [](Machine& m, Operands o) {
       write_into(m, o.a, [&](const at::Tensor& t) { t.masked_fill_(m.get(o.b) > 0.2, 0.3); });
     }},
    {"unseen_zero_", 1, true,  // through detach: autograd's version check sees it, the graph not
     [](Machine& m, Operands o) { m.get(o.a).detach().select(1, o.b % kColumns).zero_(); }},
    {"data_add_", 1, true,  // through data: not even the version moves
     [](Machine& m, Operands o) {
       if (!m.get(o.a).is_same(m.batch)) {
         m.get(o.a).data().slice(0, 0, 8).add_(0.05);
       }
     }},
    {"foreach_mul_", 1, true,
     [](Machine& m, Operands o) {
       const at::Tensor a = m.get(o.a).clone();
       const at::Tensor b = m.get(o.b).clone();
       at::_foreach_mul_({a, b}, 0.8);
       m.push(a.sin() + b, o.c);
     }},
    {"batch_mul_", 1, true, [](Machine& m, Operands) { m.batch.mul_(0.95); }},
    {"scale_data_add_", 1, false, [](Machine& m, Operands) { m.scale.data().add_(0.01); }},
    {"average_update", 1, false,
     [](Machine& m, Operands o) { m.average.mul_(0.9).add_(m.get(o.a).detach(), 0.1); }},
    {"average_out", 1, false,
     [](Machine& m, Operands o) {
       const c10::AutoGradMode off(false);
       at::mul_out(m.average, m.get(o.a).detach(), m.get(o.b).detach());
     }},
    {"read_scale", 2, false, [](Machine& m, Operands o) { m.push(m.get(o.a) + m.scale, o.c); }},
    {"read_scale_data", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).sigmoid() * m.scale.data(), o.c); }},
    {"read_average", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a) - m.average.tanh(), o.c); }},
    {"filled_empty", 1, false,
     [](Machine& m, Operands o) { m.push(at::empty({kRows, kColumns}).copy_(m.get(o.a)), o.c); }},
    {"filled_in_parts", 1, false,
     [](Machine& m, Operands o) {
       at::Tensor parts = at::empty({kRows, kColumns});
       parts.slice(0, 0, 32).copy_(m.get(o.a).slice(0, 32, 64));
       parts.slice(0, 32, 64).copy_(m.get(o.b).slice(0, 0, 32));
       m.push(parts, o.c);
     }},
    {"half_of_zeros", 1, false,
     [](Machine& m, Operands o) {
       at::Tensor half = at::zeros({kRows, kColumns});
       half.slice(1, 0, 48).copy_(m.get(o.a).slice(1, 48, 96));
       m.push(half, o.c);
     }},
    {"clone_masked_fill_", 1, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.b).clone().masked_fill_(m.get(o.a) > 0.1, 0.3), o.c);
     }},
    {"chain_", 2, false,
     [](Machine& m, Operands o) {
       m.push(m.get(o.a).mm(m.weight).add_(m.bias).mul_(0.5).tanh_(), o.c);
     }},
    {"gates_", 2, false,  // one storage, saved between its writers
     [](Machine& m, Operands o) {
       const std::vector<at::Tensor> gates = (m.get(o.a) * 1.5).unsafe_chunk(3, 1);
       const at::Tensor mixed = gates[0].sigmoid_() * gates[1].tanh_() + gates[2].sigmoid_();
       m.push(at::cat({mixed, mixed, gates[2]}, 1), o.c);
     }},
    {"relu_", 1, false,
     [](Machine& m, Operands o) { m.push(m.get(o.a).mm(m.weight).relu_(), o.c); }},
};

}  // namespace

std::span<const InstructionKind> write_instructions() { return kWriteInstructions; }

}  // namespace lowtide::testing
