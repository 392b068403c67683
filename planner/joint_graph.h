// A joint trace (Execution::joint) as its planner sees it: which op makes what, who reads it where,
// and what has to run under every plan.
//
// Slots: an op that is not of the forward is the slot of the recomputation it needs, which runs
// right before it. Holds a reference to the trace, which must outlive it. Const after
// construction: thread-safe. Units: bytes, ns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/trace.h"
#include "planner/rows.h"

namespace lowtide::planner {

class JointGraph {
 public:
  explicit JointGraph(const Trace& trace);

  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] OpId op_count() const { return static_cast<OpId>(trace_.ops.size()); }
  [[nodiscard]] bool forward(OpId op) const {
    return trace_.ops[static_cast<size_t>(op)].phase == Phase::forward;
  }
  [[nodiscard]] int64_t time_ns(OpId op) const {
    return trace_.ops[static_cast<size_t>(op)].time_ns();
  }
  // Storages that ops create; what comes from outside is always there.
  [[nodiscard]] std::span<const StorageId> reads(OpId op) const { return reads_[op]; }
  [[nodiscard]] std::span<const StorageId> outputs(OpId op) const {
    return trace_.ops[static_cast<size_t>(op)].outputs;
  }
  [[nodiscard]] OpId producer(StorageId s) const {
    return trace_.storages[static_cast<size_t>(s)].writers.front();
  }
  // Ops that read a storage, rising.
  [[nodiscard]] std::span<const OpId> forward_readers(StorageId s) const {
    return forward_readers_[s];
  }
  [[nodiscard]] std::span<const OpId> slot_readers(StorageId s) const { return slot_readers_[s]; }

  [[nodiscard]] bool saved(StorageId s) const { return saved_[static_cast<size_t>(s)] != 0; }
  // Never freed: a gradient, or an output of the forward.
  [[nodiscard]] bool lasts(StorageId s) const { return lasts_[static_cast<size_t>(s)] != 0; }
  // In memory from its producer to its last reader if it is not dropped; else the backward
  // recomputes it.
  [[nodiscard]] bool keepable(StorageId s) const { return saved(s) || lasts(s); }
  // Runs in the forward of every plan: makes what lasts, or has an effect.
  [[nodiscard]] bool anchored(OpId op) const { return anchored_[static_cast<size_t>(op)] != 0; }
  // Index of its op_begin in Trace::events.
  [[nodiscard]] int32_t begin_event(OpId op) const { return begin_event_[static_cast<size_t>(op)]; }
  // All op times of that plan, its recomputation included: extra time counts from here.
  [[nodiscard]] int64_t plain_ns() const { return plain_ns_; }

 private:
  void index_readers();
  void price_plain();

  const Trace& trace_;
  Rows<StorageId> reads_;
  Rows<OpId> forward_readers_;
  Rows<OpId> slot_readers_;
  std::vector<char> saved_;
  std::vector<char> lasts_;
  std::vector<char> anchored_;
  std::vector<int32_t> begin_event_;
  int64_t plain_ns_ = 0;
};

}  // namespace lowtide::planner
