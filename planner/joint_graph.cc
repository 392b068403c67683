#include "planner/joint_graph.h"

#include <algorithm>

#include "core/index.h"

namespace lowtide::planner {

JointGraph::JointGraph(const Trace& trace)
    : trace_(trace),
      saved_(trace.storages.size()),
      lasts_(trace.storages.size()),
      anchored_(trace.ops.size()),
      begin_event_(trace.ops.size()) {
  for (const TraceSave& save : trace.saves) saved_[at(save.storage)] = 1;
  for (size_t e = 0; e < trace.events.size(); ++e) {
    const TraceEvent& event = trace.events[e];
    if (event.kind == EventKind::op_begin) begin_event_[at(event.id)] = static_cast<int32_t>(e);
    if (event.kind == EventKind::alloc) lasts_[at(event.id)] = 1;
    if (event.kind == EventKind::free) lasts_[at(event.id)] = 0;
  }
  for (size_t o = 0; o < trace.ops.size(); ++o) {
    const TraceOp& op = trace.ops[o];
    const bool makes_lasting =
        std::any_of(op.outputs.begin(), op.outputs.end(), [&](StorageId s) { return lasts(s); });
    anchored_[o] = op.phase != Phase::forward || makes_lasting || op.flags.effect ||
                   op.flags.collective || op.flags.mutates;
  }
  index_readers();
  price_plain();
}

void JointGraph::index_readers() {
  std::vector<std::vector<OpId>> forward_readers(trace_.storages.size());
  std::vector<std::vector<OpId>> slot_readers(trace_.storages.size());
  std::vector<StorageId> row;
  for (OpId o = 0; o < op_count(); ++o) {
    row.clear();
    for (const StorageRef& ref : trace_.ops[at(o)].inputs) {
      if (trace_.storages[at(ref.storage)].writers.empty()) continue;
      if (std::find(row.begin(), row.end(), ref.storage) == row.end()) row.push_back(ref.storage);
    }
    reads_.add_row(row);
    for (const StorageId s : row) (forward(o) ? forward_readers : slot_readers)[at(s)].push_back(o);
  }
  for (size_t s = 0; s < trace_.storages.size(); ++s) {
    forward_readers_.add_row(forward_readers[s]);
    slot_readers_.add_row(slot_readers[s]);
  }
}

void JointGraph::price_plain() {
  std::vector<char> runs(trace_.ops.size());   // in the forward
  std::vector<char> again(trace_.ops.size());  // recomputed for a value that cannot be kept
  for (OpId o = op_count() - 1; o >= 0; --o) {
    if (!forward(o)) {
      plain_ns_ += time_ns(o);
      continue;
    }
    const auto needs = [&](StorageId s) {
      const auto readers = forward_readers(s);
      return keepable(s) ||
             std::any_of(readers.begin(), readers.end(), [&](OpId r) { return runs[at(r)] != 0; });
    };
    const auto needs_again = [&](StorageId s) {
      const auto readers = forward_readers(s);
      return !keepable(s) &&
             (!slot_readers(s).empty() || std::any_of(readers.begin(), readers.end(),
                                                      [&](OpId r) { return again[at(r)] != 0; }));
    };
    const auto outs = outputs(o);
    runs[at(o)] = anchored(o) || std::any_of(outs.begin(), outs.end(), needs);
    again[at(o)] = std::any_of(outs.begin(), outs.end(), needs_again);
    plain_ns_ += (runs[at(o)] + again[at(o)]) * time_ns(o);
  }
}

}  // namespace lowtide::planner
