// Selective recomputation (Korthikanti et al. 2022, Megatron-LM): of every block only what is large
// and cheap to make again. Modules, alone and together:
//   core_attn  what attention makes between its two batched products (scores, softmax, dropout);
//   act        outputs of normalizations and activation functions (Megatron's layernorm, moe_act).
// Fused attention (flash) has no core to recompute: the second module is then all there is.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"
#include "planner/block_chain.h"
#include "planner/problem.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

bool contains_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// Candidates made from the first batched product of a block on, before the last of its pair.
std::vector<StorageId> core_attention(const Trace& trace, const Stage& block) {
  std::vector<OpId> products;
  for (OpId o = block.ops.begin; o < block.ops.end; ++o) {
    if (contains_any(trace.ops[static_cast<size_t>(o)].name, {"bmm"})) products.push_back(o);
  }
  std::vector<StorageId> core;
  for (const StorageId s : block.interior) {
    const OpId creator = trace.storages[static_cast<size_t>(s)].writers.front();
    for (size_t pair = 0; pair + 1 < products.size(); pair += 2) {
      if (creator >= products[pair] && creator < products[pair + 1]) core.push_back(s);
    }
  }
  return core;
}

std::vector<StorageId> activations(const Trace& trace, const Stage& block) {
  std::vector<StorageId> result;
  for (const StorageId s : block.interior) {
    const OpId creator = trace.storages[static_cast<size_t>(s)].writers.front();
    if (contains_any(trace.ops[static_cast<size_t>(creator)].name,
                     {"layer_norm", "rms_norm", "gelu", "silu", "relu", "sigmoid", "tanh"})) {
      result.push_back(s);
    }
  }
  return result;
}

}  // namespace

void explore_selective(const Simulator& simulator, std::string_view /*argument*/,
                       Archive& archive) {
  const BlockChain chain(simulator, "selective");
  const Trace& trace = simulator.trace();
  std::vector<StorageId> core;
  std::vector<StorageId> act;
  for (const size_t i : chain.marked()) {
    const Stage& block = chain.stages()[i];
    const std::vector<StorageId> block_core = core_attention(trace, block);
    const std::vector<StorageId> block_act = activations(trace, block);
    core.insert(core.end(), block_core.begin(), block_core.end());
    act.insert(act.end(), block_act.begin(), block_act.end());
  }
  if (core.empty() && act.empty()) {
    throw InvalidInput(
        "strategy \"selective\" finds neither an attention core nor normalizations or activations "
        "among the saves of the marked blocks; use \"uniform\" or \"greedy\"");
  }
  const auto offer = [&](const std::vector<std::vector<StorageId>>& sets) {
    DecisionTable table(trace.storages.size());
    for (const auto& set : sets) {
      for (const StorageId s : set) table.action[static_cast<size_t>(s)] = Action::drop;
    }
    archive.offer(table, simulator.simulate(table), "selective");
  };
  if (!core.empty()) offer({core});
  if (!act.empty()) offer({act});
  if (!core.empty() && !act.empty()) offer({core, act});
}

}  // namespace lowtide::planner
