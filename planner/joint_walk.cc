#include "planner/joint_walk.h"

#include <algorithm>

#include "core/index.h"
#include "planner/live_set.h"

namespace lowtide::planner {

JointWalk::JointWalk(const JointGraph& graph)
    : graph_(graph),
      runs_forward_(graph.trace().ops.size()),
      original_(graph.trace().storages.size()),
      recomputed_(graph.trace().storages.size()),
      recomputed_slot_(graph.trace().storages.size()),
      op_slot_(graph.trace().ops.size()) {}

void JointWalk::run(const DecisionTable& decisions, const SimulationOptions& options,
                    SimulationResult& result) {
  decisions_ = &decisions;
  mark_forward();
  schedule();
  for (const Step& step : steps_) {
    result.recompute_ns += graph_.time_ns(step.op);
    result.replayed_ops += step.slot != step.op;
  }
  result.recompute_ns -= graph_.plain_ns();
  sweep(options, result);
}

bool JointWalk::dropped(StorageId s) const {
  return !graph_.keepable(s) || decisions_->action[at(s)] != Action::save;
}

void JointWalk::mark_forward() {
  for (OpId o = graph_.op_count() - 1; o >= 0; --o) {
    if (!graph_.forward(o)) continue;
    const auto outputs = graph_.outputs(o);
    runs_forward_[at(o)] =
        graph_.anchored(o) || std::any_of(outputs.begin(), outputs.end(), [&](StorageId s) {
          const auto readers = graph_.forward_readers(s);
          return !dropped(s) || std::any_of(readers.begin(), readers.end(),
                                            [&](OpId r) { return runs_forward_[at(r)] != 0; });
        });
  }
}

int32_t JointWalk::available(StorageId s, OpId slot) const {
  if (slot == kNone || !graph_.forward(graph_.producer(s)) || !dropped(s)) return original_[at(s)];
  const bool keep = decisions_->keep[at(s)] != 0 || recomputed_slot_[at(s)] == slot;
  return keep ? recomputed_[at(s)] : kNone;
}

void JointWalk::schedule() {
  steps_.clear();
  instances_.clear();
  std::fill(original_.begin(), original_.end(), kNone);
  std::fill(recomputed_.begin(), recomputed_.end(), kNone);
  std::fill(recomputed_slot_.begin(), recomputed_slot_.end(), kNone);
  std::fill(op_slot_.begin(), op_slot_.end(), kNone);
  for (OpId o = 0; o < graph_.op_count(); ++o) {
    if (!graph_.forward(o)) {
      schedule_slot(o);
    } else if (runs_forward_[at(o)]) {
      append(o, kNone);
    }
  }
}

void JointWalk::schedule_slot(OpId slot) {
  chain_.clear();
  const auto want_inputs = [&](OpId op) {
    for (const StorageId s : graph_.reads(op)) {
      if (available(s, slot) != kNone) continue;
      const OpId producer = graph_.producer(s);
      if (op_slot_[at(producer)] == slot) continue;
      op_slot_[at(producer)] = slot;
      chain_.push_back(producer);
    }
  };
  want_inputs(slot);
  for (size_t i = 0; i < chain_.size(); ++i) want_inputs(chain_[i]);
  std::sort(chain_.begin(), chain_.end());
  for (const OpId op : chain_) append(op, slot);
  append(slot, slot);
}

// One more step: its outputs, and what it reads lives at least to here. `slot` is kNone in the
// forward.
void JointWalk::append(OpId op, OpId slot) {
  const auto step = static_cast<int32_t>(steps_.size());
  const bool again = slot != kNone && slot != op;
  steps_.push_back({op, again ? slot : op});
  for (const StorageId s : graph_.outputs(op)) {
    const auto instance = static_cast<int32_t>(instances_.size());
    instances_.push_back({s, step, kNone});
    if (!again) {
      original_[at(s)] = instance;
    } else if (available(s, slot) == kNone) {
      recomputed_[at(s)] = instance;
      recomputed_slot_[at(s)] = slot;
    }
  }
  for (const StorageId s : graph_.reads(op)) {
    instances_[at(available(s, slot))].last_step = step;
  }
}

void JointWalk::sweep(const SimulationOptions& options, SimulationResult& result) {
  const Trace& trace = graph_.trace();
  const bool recording = options.record_memory_events || options.record_live_set;
  const int64_t level = options.level_bytes >= 0 ? options.level_bytes : INT64_MAX;
  int64_t requested = 0;
  int64_t rounded = 0;
  // Blocks: residents, then instances, then the workspace of each step.
  std::vector<StorageId> placed;
  const auto record = [&](int32_t block, int64_t bytes) {
    if (recording && bytes != 0) result.memory_events.push_back({block, bytes});
  };
  for (size_t s = 0; s < trace.storages.size(); ++s) {
    if (!trace.storages[s].resident) continue;
    requested += trace.storages[s].bytes;
    rounded += trace.storages[s].rounded_bytes;
    record(static_cast<int32_t>(placed.size()), trace.storages[s].rounded_bytes);
    placed.push_back(static_cast<StorageId>(s));
  }
  const auto residents = static_cast<int32_t>(placed.size());
  for (const Instance& instance : instances_) placed.push_back(instance.storage);
  const auto workspaces = static_cast<int32_t>(placed.size());
  placed.resize(placed.size() + steps_.size(), kNone);
  size_t peak_records = result.memory_events.size();
  result.peak_requested_bytes = requested;
  result.peak_rounded_bytes = rounded;

  dying_.assign(steps_.size(), kNone);
  for (size_t i = instances_.size(); i-- > 0;) {
    Instance& instance = instances_[i];
    const bool original = original_[at(instance.storage)] == static_cast<int32_t>(i);
    if (original && graph_.lasts(instance.storage)) continue;
    instance.next = dying_[at(instance.last_step)];
    dying_[at(instance.last_step)] = static_cast<int32_t>(i);
  }
  int32_t next = 0;  // instance to allocate
  for (size_t step = 0; step < steps_.size(); ++step) {
    const TraceOp& op = trace.ops[at(steps_[step].op)];
    for (size_t i = 0; i < op.outputs.size(); ++i, ++next) {
      const TraceStorage& storage = trace.storages[at(op.outputs[i])];
      requested += storage.bytes;
      rounded += storage.rounded_bytes;
      record(residents + next, storage.bytes);
    }
    if (requested + op.workspace_bytes > result.peak_requested_bytes) {
      result.peak_requested_bytes = requested + op.workspace_bytes;
      result.peak_event = graph_.begin_event(steps_[step].slot);
      peak_records = result.memory_events.size();
    }
    record(workspaces + static_cast<int32_t>(step), op.workspace_bytes);
    record(workspaces + static_cast<int32_t>(step), -op.workspace_bytes);
    const int64_t top = rounded + op.workspace_bytes;
    result.peak_rounded_bytes = std::max(result.peak_rounded_bytes, top);
    if (top > level) add_saturated(result.excess_bytes, top - level);
    for (int32_t i = dying_[step]; i != kNone; i = instances_[at(i)].next) {
      const TraceStorage& storage = trace.storages[at(instances_[at(i)].storage)];
      requested -= storage.bytes;
      rounded -= storage.rounded_bytes;
      record(residents + i, -storage.bytes);
    }
  }
  if (options.record_live_set) {
    result.live_at_peak = live_set(result.memory_events, peak_records, placed, trace);
  }
  if (!options.record_memory_events) result.memory_events.clear();
}

}  // namespace lowtide::planner
