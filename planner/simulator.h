// The truth of the planner: the whole step of a trace, event by event, under a set of decisions.
// (A joint trace has rules of its own: joint_walk.h.)
//
// Rules (design section 7): a storage lives from its alloc event; a kept one dies at its free
// event. A dropped one dies at its first `release` event after creation. An `unpack` of an absent
// storage replays the missing writers, in completion order, with all absent ancestors; each
// replayed op repeats the alloc/free pattern of its own op_begin..op_end slice; replay temporaries
// die after their last use in the replay. A rebuilt storage that still has saves to come and whose
// decision says keep stays until its free event; else it dies at the next `release` after the
// unpack (the target), or after the last op of the replay that reads the storage at any version (an
// intermediate). In-place writers are replayed into the same rebuilt storage (no new bytes). A
// replay that needs an *older* version of a present storage rebuilds it beside the live one.
//
// An output of a replayed op that nothing in the replay needs is freed as the op ends, unless its
// saves keep it like any other rebuilt storage. A kept value also dies when its last save is
// dropped, unless something is reading it. `workspace_bytes` is not added: the temporaries are in
// the slice.
//
// `simulate` is O(events + replayed ops); deterministic; const on the trace. It reuses scratch
// memory: one Simulator per thread. The trace must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::planner {

// Dense form of a plan: one entry per storage.
struct DecisionTable {
  std::vector<Action> action;
  std::vector<char> keep;  // keep_after_recompute
  explicit DecisionTable(size_t storages) : action(storages, Action::save), keep(storages, 1) {}
  DecisionTable(const Trace& trace, const std::vector<Decision>& decisions);
  [[nodiscard]] std::vector<Decision> to_decisions() const;
};

// One allocation or free of the simulated step, for the replay through a caching core.
struct SimulatedMemoryEvent {
  int32_t block = 0;  // unique per allocation within the step
  int64_t bytes = 0;  // > 0 alloc, < 0 free (requested bytes)
};

struct SimulationOptions {
  bool record_memory_events = false;
  bool record_live_set = false;
  // Where >= 0: `excess_bytes` sums, over all allocs, the rounded live bytes above this level.
  int64_t level_bytes = -1;
};

struct SimulationResult {
  int64_t peak_requested_bytes = 0;
  int64_t peak_rounded_bytes = 0;  // own maximum, not at the same instant
  int64_t recompute_ns = 0;        // extra time against keep all; a joint one may be below zero
  int64_t replayed_ops = 0;
  int64_t excess_bytes = 0;             // a smooth measure for searches; 0 without a level
  int32_t peak_event = kNone;           // trace event during which the requested peak was reached;
                                        // kNone: nothing ever exceeds what is alive at the start
  std::vector<StorageId> live_at_peak;  // at the requested peak, descending bytes
  std::vector<SimulatedMemoryEvent> memory_events;  // residents first, as allocs
};

// Adds to a sum that orders plans and may be too large to hold: it stays at the largest value then.
inline void add_saturated(int64_t& sum, int64_t bytes) {
  sum = sum > INT64_MAX - bytes ? INT64_MAX : sum + bytes;
}

class JointGraph;
class JointWalk;
class Problem;

class Simulator {
 public:
  explicit Simulator(const Trace& trace);
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  [[nodiscard]] SimulationResult simulate(const DecisionTable& decisions,
                                          SimulationOptions options = {}) const;
  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] const Problem& problem() const { return *problem_; }
  // Null where the trace is not a joint one.
  [[nodiscard]] const JointGraph* joint_graph() const { return joint_graph_.get(); }
  // When its construction began: time limits count from here.
  [[nodiscard]] std::chrono::steady_clock::time_point begun() const { return begun_; }
  // Events and replayed ops visited so far: the cost of a search, the same on every machine.
  [[nodiscard]] int64_t work() const { return work_; }

 private:
  struct Scratch;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  const Trace& trace_;
  std::unique_ptr<const Problem> problem_;
  std::unique_ptr<Scratch> scratch_;               // reused by every call
  std::unique_ptr<const JointGraph> joint_graph_;  // of a joint trace, else null
  std::unique_ptr<JointWalk> joint_walk_;
  mutable int64_t work_ = 0;
};

}  // namespace lowtide::planner
