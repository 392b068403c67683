// What a random program computes with: a pool of tensors, some leaves, some buffers.
//
// Every tensor of the pool is a float [64, 96] (24 KiB: a block of its own in the allocator), of
// any strides, storage and history. An instruction names pool tensors by number modulo the pool's
// size, so that a program stays a program when instructions are taken out. Values stay bounded: a
// program that runs into NaN proves little.
//
// Not thread-safe. Instructions throw what their ops throw (c10::Error where autograd refuses).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide::testing {

inline constexpr int64_t kRows = 64;
inline constexpr int64_t kColumns = 96;

struct Operands {
  uint8_t a = 0;
  uint8_t b = 0;
  uint8_t c = 0;
};

class Machine {
 public:
  Machine();  // the caller has seeded the default generator

  // One forward begins: the pool is the batch and two functions of it.
  void begin();
  [[nodiscard]] at::Tensor get(uint8_t i) const { return pool_[i % pool_.size()]; }
  // Adds a tensor; `victim` names the one that leaves a full pool.
  void push(at::Tensor tensor, uint8_t victim);
  void drop(uint8_t i);
  // The sum of everything that the pool still knows.
  [[nodiscard]] at::Tensor loss() const;
  void end();

  [[nodiscard]] std::vector<at::Tensor> leaves() const;
  [[nodiscard]] std::vector<at::Tensor> buffers() const;

  at::Tensor batch, weight, bias, table, kernel;
  std::vector<at::Tensor> lstm;  // weights and biases of one layer
  at::Tensor running_mean, running_var, scale, average;
  at::Generator generator;  // passed by hand
  bool evaluating = false;  // batch norm's mode

 private:
  std::vector<at::Tensor> pool_;
};

struct InstructionKind {
  const char* name;
  int weight;   // how often it is drawn
  bool writes;  // in place, into something that autograd may have saved
  void (*run)(Machine&, Operands);
};

// By what they are about: values, writes, draws and state, the graph itself.
[[nodiscard]] std::span<const InstructionKind> value_instructions();
[[nodiscard]] std::span<const InstructionKind> write_instructions();
[[nodiscard]] std::span<const InstructionKind> state_instructions();
[[nodiscard]] std::span<const InstructionKind> graph_instructions();

}  // namespace lowtide::testing
