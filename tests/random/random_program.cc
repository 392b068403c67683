#include "random/random_program.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "core/error.h"

namespace lowtide::testing {
namespace {

std::vector<const InstructionKind*> all_kinds() {
  std::vector<const InstructionKind*> kinds;
  for (const auto list :
       {value_instructions(), write_instructions(), state_instructions(), graph_instructions()}) {
    for (const InstructionKind& kind : list) {
      kinds.push_back(&kind);
    }
  }
  return kinds;
}

// Each kind as often as its weight says.
const std::vector<const InstructionKind*>& lottery() {
  static const auto* const tickets = [] {
    auto* all = new std::vector<const InstructionKind*>;
    for (const InstructionKind* kind : all_kinds()) {
      all->insert(all->end(), static_cast<size_t>(kind->weight), kind);
    }
    return all;
  }();
  return *tickets;
}

const InstructionKind* find_kind(const std::string& name) {
  for (const InstructionKind* kind : all_kinds()) {
    if (name == kind->name) {
      return kind;
    }
  }
  throw InvalidInput("there is no instruction '" + name +
                     "'. Fix: give a program as a failure printed it");
}

}  // namespace

RandomProgram generate(uint64_t seed, int length) {
  std::mt19937_64 random(seed);
  RandomProgram program{seed, {}};
  for (int i = 0; i < length; ++i) {
    const InstructionKind* kind = lottery()[random() % lottery().size()];
    const uint64_t operands = random();
    program.body.push_back({kind,
                            {static_cast<uint8_t>(operands), static_cast<uint8_t>(operands >> 8),
                             static_cast<uint8_t>(operands >> 16)}});
  }
  return program;
}

RandomProgram generate(uint64_t seed) {
  return generate(seed, 10 + static_cast<int>(std::mt19937_64(~seed)() % 31));
}

std::string to_text(const RandomProgram& program) {
  std::string text = std::to_string(program.seed) + ":";
  for (const Instruction& i : program.body) {
    text += std::string(&i == program.body.data() ? " " : "; ") + i.kind->name;
    for (const uint8_t operand : {i.operands.a, i.operands.b, i.operands.c}) {
      text += " " + std::to_string(operand);
    }
  }
  return text;
}

RandomProgram from_text(std::string_view text) {
  RandomProgram program;
  std::istringstream in{std::string(text)};
  char colon = 0;
  if (!(in >> program.seed >> colon) || colon != ':') {
    throw InvalidInput("a program begins with its seed and a colon");
  }
  std::string name;
  while (in >> name) {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    const InstructionKind* kind = find_kind(name);
    if (!(in >> a >> b >> c)) {
      throw InvalidInput("the instruction '" + name + "' needs three numbers");
    }
    program.body.push_back(
        {kind, {static_cast<uint8_t>(a), static_cast<uint8_t>(b), static_cast<uint8_t>(c)}});
    in >> colon;  // ';', or the end
  }
  return program;
}

std::vector<at::Tensor> run_step(Machine& machine, const std::vector<Instruction>& body) {
  const std::vector<at::Tensor> leaves = machine.leaves();
  for (const at::Tensor& leaf : leaves) {
    leaf.mutable_grad() = at::Tensor();
  }
  machine.begin();
  for (const Instruction& instruction : body) {
    instruction.kind->run(machine, instruction.operands);
  }
  const at::Tensor loss = machine.loss();
  machine.end();
  loss.backward();
  std::vector<at::Tensor> seen{loss.detach()};
  const c10::AutoGradMode off(false);
  for (const at::Tensor& leaf : leaves) {
    if (leaf.grad().defined()) {
      seen.push_back(leaf.grad());
      leaf.sub_(leaf.grad().clamp(-1, 1), 1e-3);
    }
    seen.push_back(leaf.detach());
  }
  for (const at::Tensor& buffer : machine.buffers()) {
    seen.push_back(buffer);
  }
  return seen;
}

Program runnable(RandomProgram program) {
  return [program = std::move(program)]() -> StepFunction {
    at::manual_seed(program.seed);
    return [machine = std::make_shared<Machine>(), body = program.body](int) {
      return run_step(*machine, body);
    };
  };
}

std::string refusal_of(const RandomProgram& program) {
  try {
    (void)runnable(program)()(1);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

RandomProgram repair(RandomProgram program) {
  std::mt19937_64 random(program.seed);
  while (!refusal_of(program).empty()) {
    std::vector<size_t> victims;
    for (size_t i = 0; i < program.body.size(); ++i) {
      if (program.body[i].kind->writes) {
        victims.push_back(i);
      }
    }
    if (victims.empty()) {
      victims.resize(program.body.size());
      std::iota(victims.begin(), victims.end(), size_t{0});
    }
    LOWTIDE_CHECK(!victims.empty(), "the empty program is refused: " + refusal_of(program));
    const size_t victim = victims[random() % victims.size()];
    program.body.erase(program.body.begin() + static_cast<std::ptrdiff_t>(victim));
  }
  return program;
}

RandomProgram shrink(RandomProgram program,
                     const std::function<bool(const RandomProgram&)>& fails) {
  for (size_t chunk = std::max<size_t>(1, program.body.size() / 2); chunk > 0;) {
    bool smaller = false;
    for (size_t at = 0; at + chunk <= program.body.size();) {
      RandomProgram candidate = program;
      const auto first = candidate.body.begin() + static_cast<std::ptrdiff_t>(at);
      candidate.body.erase(first, first + static_cast<std::ptrdiff_t>(chunk));
      if (fails(candidate)) {
        program = std::move(candidate);
        smaller = true;
      } else {
        at += chunk;
      }
    }
    // A pass over single instructions may open the way for another.
    if (!(smaller && chunk == 1)) {
      chunk /= 2;
    }
  }
  return program;
}

}  // namespace lowtide::testing
