#include "planner/block_chain.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/index.h"
#include "planner/problem.h"

namespace lowtide::planner {
namespace {

OpId creator_of(const Trace& trace, StorageId s) {
  const auto& writers = trace.storages[at(s)].writers;
  return writers.empty() ? kNone : writers.front();
}

}  // namespace

BlockChain::BlockChain(const Simulator& simulator, std::string_view strategy) {
  const Trace& trace = simulator.trace();
  if (trace.blocks.empty()) {
    throw InvalidInput("strategy \"" + std::string(strategy) +
                       "\" needs a trace whose blocks are marked; let them be found (lowtide "
                       "frontier --mark-blocks) or use \"greedy\"");
  }
  OpId forward_end = 0;
  for (size_t o = 0; o < trace.ops.size(); ++o) {
    if (trace.ops[o].phase == Phase::forward) forward_end = static_cast<OpId>(o) + 1;
  }
  OpId next = 0;
  const auto add = [&](OpId begin, OpId end, bool marked) {
    if (begin >= end) return;
    Stage stage;
    stage.ops = {begin, end};
    stage.marked = marked;
    for (OpId o = begin; o < end; ++o) {
      const TraceOp& op = trace.ops[at(o)];
      if (op.phase == Phase::forward) stage.recompute_ns += op.recompute_ns();
    }
    if (marked) marked_.push_back(stages_.size());
    stages_.push_back(std::move(stage));
  };
  for (const TraceBlock& block : trace.blocks) {
    add(next, block.begin, false);
    add(block.begin, block.end, true);
    next = block.end;
  }
  add(next, forward_end, false);

  const Problem& problem = simulator.problem();
  for (const StorageId s : problem.candidates()) {
    const OpId creator = creator_of(trace, s);
    const auto stage =
        std::upper_bound(stages_.begin(), stages_.end(), creator,
                         [](OpId op, const Stage& other) { return op < other.ops.end; });
    if (stage == stages_.end()) continue;  // made by no op of the forward
    stage->interior.push_back(s);
    stage->interior_bytes += problem.size(s).rounded;
  }
  find_inputs(simulator);
}

void BlockChain::find_inputs(const Simulator& simulator) {
  const Trace& trace = simulator.trace();
  std::vector<char> candidate(trace.storages.size());
  for (const StorageId s : simulator.problem().candidates()) candidate[at(s)] = 1;
  std::vector<size_t> seen(trace.storages.size());  // 1 + stage that came by last
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    std::vector<StorageId> pending;
    const auto reach = [&](const TraceOp& op) {
      if (op.phase != Phase::forward) return;
      for (const StorageRef& ref : op.inputs) {
        const OpId creator = creator_of(trace, ref.storage);
        if (creator == kNone || creator >= stage.ops.begin) continue;
        if (seen[at(ref.storage)] == i + 1) continue;
        seen[at(ref.storage)] = i + 1;
        pending.push_back(ref.storage);
      }
    };
    for (OpId o = stage.ops.begin; o < stage.ops.end; ++o) reach(trace.ops[at(o)]);
    while (!pending.empty()) {
      const StorageId s = pending.back();
      pending.pop_back();
      if (candidate[at(s)]) {
        stage.inputs.push_back(s);
        stage.input_bytes += simulator.problem().size(s).rounded;
        continue;
      }
      for (const OpId writer : trace.storages[at(s)].writers) reach(trace.ops[at(writer)]);
    }
    std::sort(stage.inputs.begin(), stage.inputs.end());
  }
}

std::vector<StorageId> BlockChain::inputs_of(size_t begin, size_t end) const {
  std::vector<StorageId> inputs;
  std::vector<StorageId> own;
  for (size_t i = begin; i < end; ++i) {
    const Stage& stage = stages_[i];
    inputs.insert(inputs.end(), stage.inputs.begin(), stage.inputs.end());
    own.insert(own.end(), stage.interior.begin(), stage.interior.end());
  }
  std::sort(inputs.begin(), inputs.end());
  std::sort(own.begin(), own.end());
  std::vector<StorageId> result;
  std::set_difference(inputs.begin(), inputs.end(), own.begin(), own.end(),
                      std::back_inserter(result));
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

BlockSchedule::BlockSchedule(const BlockChain& chain)
    : chain_(chain), interior_(chain.stages().size()) {}

void BlockSchedule::checkpoint(size_t begin, size_t end, int level) {
  checkpoints_.push_back({begin, end, level});
}

DecisionTable BlockSchedule::decide(const Simulator& simulator, bool keep_deep) const {
  DecisionTable table(simulator.trace().storages.size());
  for (size_t i = 0; i < interior_.size(); ++i) {
    if (interior_[i] == 0) continue;
    for (const StorageId s : chain_.stages()[i].interior) {
      table.action[at(s)] = Action::drop;
      table.keep[at(s)] = interior_[i] <= 1 || keep_deep ? 1 : 0;
    }
  }
  for (const Checkpoint& checkpoint : checkpoints_) {
    for (const StorageId s : chain_.inputs_of(checkpoint.begin, checkpoint.end)) {
      table.keep[at(s)] = 1;
      if (checkpoint.level == 0) table.action[at(s)] = Action::save;
    }
  }
  // What is not recomputed reads what it reads in the forward: that is stored as well.
  for (size_t i = 0; i < interior_.size(); ++i) {
    if (interior_[i] != 0) continue;
    for (const StorageId s : chain_.stages()[i].inputs) table.action[at(s)] = Action::save;
  }
  return table;
}

void BlockSchedule::offer(const Simulator& simulator, std::string_view strategy,
                          Archive& archive) const {
  const bool deep =
      std::any_of(interior_.begin(), interior_.end(), [](int level) { return level > 1; });
  for (const bool keep_deep : {true, false}) {
    if (!keep_deep && !deep) break;
    const DecisionTable table = decide(simulator, keep_deep);
    archive.offer(table, simulator.simulate(table), strategy);
  }
}

}  // namespace lowtide::planner
