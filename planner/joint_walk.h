// The truth of the planner for joint traces: the program that a plan would be compiled to, op by
// op. See Execution::joint for what the trace promises, simulator.h for the results.
//
// Rules: a forward op runs in the forward where it is anchored, or makes a kept value, or is read
// by a forward op that runs. A slot (an op that is not of the forward) first recomputes, in the
// order of the forward, every op that makes a value it needs and that is not in memory: its own
// inputs and what those need in turn. A recomputed value stays to the last op that reads it; one
// whose keep bit is off is freed as its slot ends and recomputed by the next slot that needs it.
// A kept value stays to its last reader, recomputation included; lasting ones to the end. An output
// that is in memory already, or that nobody reads, is freed as the op that repeats it ends. The
// peak is taken at every op: inputs, outputs and workspace together.
//
// O(ops + recomputed ops). Reuses scratch memory: one JointWalk per thread.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/joint_graph.h"
#include "planner/simulator.h"

namespace lowtide::planner {

class JointWalk {
 public:
  explicit JointWalk(const JointGraph& graph);

  // `result` is empty before; residents are placed first.
  void run(const DecisionTable& decisions, const SimulationOptions& options,
           SimulationResult& result);

 private:
  struct Step {
    OpId op = kNone;
    OpId slot = kNone;  // op itself where it is no recomputation
  };
  // The bytes of one run of a producer.
  struct Instance {
    StorageId storage = kNone;
    int32_t last_step = 0;
    int32_t next = kNone;  // in the list of those that die at the same step
  };

  [[nodiscard]] bool dropped(StorageId s) const;
  void mark_forward();
  void schedule();
  void schedule_slot(OpId slot);
  void append(OpId op, OpId slot);
  void sweep(const SimulationOptions& options, SimulationResult& result);
  // Instance of a value for a reader in this slot (kNone: of the forward); null where missing.
  [[nodiscard]] int32_t available(StorageId s, OpId slot) const;

  const JointGraph& graph_;
  const DecisionTable* decisions_ = nullptr;
  std::vector<char> runs_forward_;  // per op
  std::vector<Step> steps_;
  std::vector<Instance> instances_;    // in the order of their allocation
  std::vector<int32_t> original_;      // per storage: instance of its producer's first run
  std::vector<int32_t> recomputed_;    // the last recomputed instance
  std::vector<OpId> recomputed_slot_;  // and its slot
  std::vector<OpId> chain_;
  std::vector<OpId> op_slot_;   // last slot that has the op in its chain
  std::vector<int32_t> dying_;  // per step: first instance that dies there
};

}  // namespace lowtide::planner
