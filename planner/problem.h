// What the simulator and the strategies need to know about one trace, computed once.
//
// Only storages in `tracked` can ever be dropped, rebuilt, or be read by a replay; everything else
// lives as in the plain step whatever the plan says. Runs of untracked allocs and frees are folded
// into one `Block` each, so that a simulated step visits what matters only.
// Holds a reference to the trace, which must outlive it. Const after construction: thread-safe.
// Units: bytes, ns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/trace.h"
#include "planner/rows.h"

namespace lowtide::planner {

// Requested and rounded bytes move together.
struct Amount {
  int64_t requested = 0;
  int64_t rounded = 0;
  Amount& operator+=(const Amount& other) {
    requested += other.requested;
    rounded += other.rounded;
    return *this;
  }
  Amount& operator-=(const Amount& other) {
    requested -= other.requested;
    rounded -= other.rounded;
    return *this;
  }
  friend Amount operator+(Amount a, const Amount& b) { return a += b; }
};

// A trace event, or a fold of several.
struct SimStep {
  enum class Kind : uint8_t { alloc, free, block, op_end, pack, unpack, drop_save, release };
  Kind kind = Kind::alloc;
  int32_t id = kNone;     // storage (alloc, free, release), op, save, or block index
  int32_t event = kNone;  // index into Trace::events (of a block: its first)
};

struct Block {
  Amount delta;
  Amount peak;                 // above the bytes live before it
  int32_t peak_event = kNone;  // where the requested peak is reached
};

// What replaying an op does to memory, from its own op_begin..op_end slice.
struct ReplayOp {
  Amount peak;     // above the bytes live before it
  Amount outputs;  // still live at its end
};

// Where the forward is thin: what later forward ops still read of what earlier ones made.
struct Cut {
  OpId after = kNone;  // the op before the cut
  int64_t crossing_bytes = 0;
  std::vector<StorageId> crossing;  // candidates among them
};

class Problem {
 public:
  explicit Problem(const Trace& trace);

  [[nodiscard]] const Trace& trace() const { return trace_; }
  // Recomputable storages with saves and bytes, ascending.
  [[nodiscard]] const std::vector<StorageId>& candidates() const { return candidates_; }
  [[nodiscard]] bool created(StorageId s) const { return created_[static_cast<size_t>(s)] != 0; }
  [[nodiscard]] bool creates(OpId op, StorageId s) const;
  [[nodiscard]] bool tracked(StorageId s) const { return tracked_[static_cast<size_t>(s)] != 0; }
  [[nodiscard]] Amount size(StorageId s) const {
    const TraceStorage& storage = trace_.storages[static_cast<size_t>(s)];
    return {storage.bytes, storage.rounded_bytes};
  }
  [[nodiscard]] Amount resident() const { return resident_; }
  [[nodiscard]] const std::vector<SimStep>& steps() const { return steps_; }
  [[nodiscard]] const std::vector<SimStep>& unfolded_steps() const { return unfolded_steps_; }
  [[nodiscard]] const Block& block(int32_t index) const {
    return blocks_[static_cast<size_t>(index)];
  }

  // For ops that can be replayed (others have empty rows):
  // the states read, a written storage before the write included; never an external storage;
  [[nodiscard]] std::span<const StorageRef> reads(OpId op) const { return reads_[op]; }
  // storages written, in place or by creation, never an external one;
  [[nodiscard]] std::span<const StorageId> writes(OpId op) const { return writes_[op]; }
  // outputs that outlive the op;
  [[nodiscard]] std::span<const StorageId> outputs(OpId op) const { return outputs_[op]; }
  // allocs (storage) and frees (~storage) in the op's slice, outputs never freed.
  [[nodiscard]] std::span<const int32_t> slice(OpId op) const { return slices_[op]; }
  [[nodiscard]] const ReplayOp& replay(OpId op) const { return replays_[static_cast<size_t>(op)]; }

  // Places to cut the forward at, in order; thin ones only. See strategy_greedy.cc.
  [[nodiscard]] std::vector<Cut> forward_cuts() const;

 private:
  void track();
  void index_ops();
  void fold_steps();

  const Trace& trace_;
  std::vector<StorageId> candidates_;
  std::vector<char> created_;
  std::vector<char> tracked_;
  std::vector<char> replayable_;  // per op
  Amount resident_;
  std::vector<SimStep> steps_;
  std::vector<SimStep> unfolded_steps_;
  std::vector<Block> blocks_;
  Rows<StorageRef> reads_;
  Rows<StorageId> writes_;
  Rows<StorageId> outputs_;
  Rows<int32_t> slices_;
  std::vector<ReplayOp> replays_;
};

}  // namespace lowtide::planner
