// The forward of a trace as a chain of stages, as hand-written recomputation sees a model: marked
// blocks (Trace::blocks) and what lies between them. And the plan that a recomputation schedule on
// such a chain comes to in the planner's own space, so that all are judged by the same simulator.
//
// Levels say when a stage's values come to stay: 0, in the forward itself; 1, when the backward
// first runs the stage again; 2 and more, in a recomputation inside a recomputation. Our plans
// recompute single values on demand: a value of level 2 or more is either kept from its first
// recomputation on or recomputed for every use, and a schedule offers both.
//
// What has to be there to run a stage again is what it reads of earlier stages. Where that is
// itself no candidate (residual sums that nobody saves), the candidates it is made from stand in.
// Const after construction; refers to the simulator's trace. Units: bytes, ns.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/archive.h"
#include "planner/simulator.h"

namespace lowtide::planner {

struct Stage {
  TraceBlock ops;  // of the forward; where a step has several, others may lie in between
  bool marked = false;
  std::vector<StorageId> interior;  // candidates that its ops create, ascending
  std::vector<StorageId> inputs;    // candidates of earlier stages that stand for what it reads
  int64_t recompute_ns = 0;
  int64_t interior_bytes = 0;  // rounded
  int64_t input_bytes = 0;
};

class BlockChain {
 public:
  // Throws InvalidInput that names `strategy` where the trace has no marked blocks.
  BlockChain(const Simulator& simulator, std::string_view strategy);

  // All of the forward, in order; at least one is marked.
  [[nodiscard]] const std::vector<Stage>& stages() const { return stages_; }
  // Indices of the marked ones.
  [[nodiscard]] const std::vector<size_t>& marked() const { return marked_; }

  // Candidates that running the stages [begin, end) again needs from before `begin`.
  [[nodiscard]] std::vector<StorageId> inputs_of(size_t begin, size_t end) const;

 private:
  void find_inputs(const Simulator& simulator);

  std::vector<Stage> stages_;
  std::vector<size_t> marked_;
};

// A schedule: the level of each stage's interior, and the checkpoints whose inputs are stored.
class BlockSchedule {
 public:
  explicit BlockSchedule(const BlockChain& chain);
  // Stages [begin, end) are run again together, from their inputs: a checkpoint around them.
  void checkpoint(size_t begin, size_t end, int level);
  void set_interior(size_t stage, int level) { interior_[stage] = level; }

  // Simulates what the schedule comes to, and offers it.
  void offer(const Simulator& simulator, std::string_view strategy, Archive& archive) const;

 private:
  struct Checkpoint {
    size_t begin, end;
    int level;
  };
  [[nodiscard]] DecisionTable decide(const Simulator& simulator, bool keep_deep) const;

  const BlockChain& chain_;
  std::vector<int> interior_;
  std::vector<Checkpoint> checkpoints_;
};

}  // namespace lowtide::planner
