// Incremental evaluation of joint traces (rules: joint_walk.h).
//
// Instants of the time axis are ops; recomputation belongs to its slot. A run of an op in the
// forward depends only on its readers' runs, and so do the slots it is recomputed in; readers come
// later in the forward, so a change is carried through by one pass over the affected ops from the
// last to the first. A value that is alive through a whole instant weighs there as a range; births
// and deaths weigh inside their own instant, which is walked op by op when something in it changed.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/evaluator.h"
#include "planner/joint_graph.h"
#include "planner/time_axis.h"

namespace lowtide::planner {

class JointEvaluator final : public Evaluator {
 public:
  explicit JointEvaluator(const JointGraph& graph);

  void set(StorageId s, Choice choice) override;
  [[nodiscard]] int64_t peak_bytes() override { return residents_ + axis_.max(); }
  [[nodiscard]] int64_t extra_ns() override { return extra_ns_; }
  [[nodiscard]] int64_t excess(int64_t level) override;
  [[nodiscard]] int64_t work() const override { return work_; }

 private:
  // Alive from inside instant `birth` to inside instant `death`; kNone: never.
  struct Life {
    OpId birth = kNone;
    OpId death = kNone;
    friend bool operator==(const Life&, const Life&) = default;
  };
  struct StorageState {
    Life original;         // as its producer's own run makes it
    Life again;            // as recomputed and kept
    bool dropped = false;  // or cannot be kept
    bool keep = true;      // the keep bit
    bool touched = false;  // in touched_
  };
  struct OpState {
    bool runs = false;         // in the forward
    bool queued = false;       // in queue_
    bool dirty = false;        // in dirty_: its instant is to be walked
    std::vector<OpId> slots;   // where it is recomputed, rising
    std::vector<OpId> chain;   // of a slot: what it recomputes, rising
    int64_t inside_bytes = 0;  // what its instant weighs on the axis beyond ranges
  };
  struct Use {  // of a storage inside the instant being walked
    int32_t epoch = 0;
    int32_t last = 0;   // position of the last reader
    bool ends = false;  // its bytes fall after that
  };

  void settle();
  void update_op(OpId op);
  void find_slots(OpId op);
  [[nodiscard]] Life original_life(StorageId s) const;
  [[nodiscard]] Life again_life(StorageId s) const;
  [[nodiscard]] OpId last_backward_use(StorageId s) const;
  void move(Life& life, const Life& to, int64_t bytes);
  void walk_instant(OpId instant);
  void touch(StorageId s);
  void enqueue(OpId op);
  void mark(OpId instant);

  [[nodiscard]] StorageState& state(StorageId s) { return storages_[static_cast<size_t>(s)]; }
  [[nodiscard]] const StorageState& state(StorageId s) const {
    return storages_[static_cast<size_t>(s)];
  }
  [[nodiscard]] OpState& op_state(OpId op) { return ops_[static_cast<size_t>(op)]; }
  [[nodiscard]] const OpState& op_state(OpId op) const { return ops_[static_cast<size_t>(op)]; }
  [[nodiscard]] int64_t bytes(StorageId s) const { return bytes_[static_cast<size_t>(s)]; }

  const JointGraph& graph_;
  std::vector<int64_t> bytes_;
  std::vector<StorageState> storages_;
  std::vector<OpState> ops_;
  std::vector<Use> uses_;
  TimeAxis axis_;
  int64_t residents_ = 0;
  int64_t extra_ns_ = 0;
  int64_t work_ = 0;
  int32_t epoch_ = 0;
  std::vector<OpId> queue_;  // heap, the last op first
  std::vector<StorageId> touched_;
  std::vector<OpId> dirty_;
  std::vector<OpId> slots_;        // scratch of find_slots
  std::vector<OpId> instant_ops_;  // scratch of walk_instant
};

}  // namespace lowtide::planner
