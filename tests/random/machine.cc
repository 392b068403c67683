#include "random/machine.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <utility>

namespace lowtide::testing {
namespace {

constexpr size_t kPoolSize = 7;

at::Tensor leaf(at::IntArrayRef sizes) { return (at::randn(sizes) * 0.1).requires_grad_(); }

}  // namespace

Machine::Machine()
    : batch(at::randn({kRows, kColumns})),
      weight(leaf({kColumns, kColumns})),
      bias(leaf({kColumns})),
      table(leaf({40, kColumns})),
      kernel(leaf({16, 16, 3})),
      lstm{leaf({4 * kColumns, kColumns}), leaf({4 * kColumns, kColumns}), leaf({4 * kColumns}),
           leaf({4 * kColumns})},
      running_mean(at::zeros({kColumns})),
      running_var(at::ones({kColumns})),
      scale(at::rand({kRows, kColumns}) + 0.5),
      average(at::zeros({kRows, kColumns})),
      generator(at::detail::createCPUGenerator(17)) {}

void Machine::begin() {
  evaluating = false;
  const at::Tensor first = batch.mm(weight);
  pool_ = {first, batch, (first + bias).tanh()};
}

void Machine::push(at::Tensor tensor, uint8_t victim) {
  pool_.push_back(std::move(tensor));
  if (pool_.size() > kPoolSize) {
    pool_.erase(pool_.begin() + victim % (kPoolSize - 1));
  }
}

void Machine::drop(uint8_t i) {
  if (pool_.size() > 1) {
    pool_.erase(pool_.begin() + i % static_cast<int>(pool_.size()));
  }
}

at::Tensor Machine::loss() const {
  at::Tensor sum = (pool_.back() * weight.sum()).mean();
  for (const at::Tensor& tensor : pool_) {
    sum = sum + tensor.mean() * 0.1;
  }
  return sum;
}

void Machine::end() { pool_.clear(); }

std::vector<at::Tensor> Machine::leaves() const {
  std::vector<at::Tensor> all{weight, bias, table, kernel};
  all.insert(all.end(), lstm.begin(), lstm.end());
  return all;
}

std::vector<at::Tensor> Machine::buffers() const {
  return {batch, running_mean, running_var, scale, average};
}

}  // namespace lowtide::testing
