// A random training program as data: drawn from a seed, written as text, run, made smaller.
//
// `generate` never asks whether the program is legal: autograd may refuse it (a saved tensor was
// written in place). `repair` takes writes out until it is accepted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "random/machine.h"
#include "unit/runtime/training_pair.h"

namespace lowtide::testing {

struct Instruction {
  const InstructionKind* kind = nullptr;
  Operands operands;
};

struct RandomProgram {
  uint64_t seed = 0;  // of its tensors too
  std::vector<Instruction> body;
};

// `length`: instructions.
[[nodiscard]] RandomProgram generate(uint64_t seed, int length);
// 10 to 40 instructions.
[[nodiscard]] RandomProgram generate(uint64_t seed);

// "17: mm 3 1 0; mul_ 2 0 1": what a failure prints, and what from_text reads back. Throws
// InvalidInput naming the word.
[[nodiscard]] std::string to_text(const RandomProgram& program);
[[nodiscard]] RandomProgram from_text(std::string_view text);

// One step: the body, a backward over all that is left, plain descent. What is observed: loss,
// gradients, leaves, buffers; not copies, which would make the step's peak.
[[nodiscard]] std::vector<at::Tensor> run_step(Machine& machine,
                                               const std::vector<Instruction>& body);
[[nodiscard]] Program runnable(RandomProgram program);

// Autograd's refusal of a step, in its own words; empty = accepted.
[[nodiscard]] std::string refusal_of(const RandomProgram& program);
// Takes random writes out until autograd accepts the program; where no write is left to blame (a
// second derivative that torch lacks), any instruction.
[[nodiscard]] RandomProgram repair(RandomProgram program);

// The smallest program found that still `fails`, by taking instructions out.
[[nodiscard]] RandomProgram shrink(RandomProgram program,
                                   const std::function<bool(const RandomProgram&)>& fails);

}  // namespace lowtide::testing
