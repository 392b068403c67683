#include "cli/trace_facts.h"

#include <algorithm>
#include <map>

#include "cli/text_table.h"
#include "planner/simulator.h"

namespace lowtide::cli {
namespace {

template <typename T>
const T& at(const std::vector<T>& list, int32_t id) {
  return list[static_cast<size_t>(id)];
}

void count_ops(const Trace& trace, TraceFacts& facts) {
  std::map<std::string, OpGroup> groups;
  for (const TraceOp& op : trace.ops) {
    ++facts.ops_by_phase[static_cast<size_t>(op.phase)];
    facts.time_ns += op.time_ns();
    facts.unmeasured_ops += op.samples == 0 ? 1 : 0;
    OpGroup& group = groups[op.name];
    group.name = op.name;
    ++group.count;
    group.time_ns += op.time_ns();
  }
  for (auto& [name, group] : groups) facts.slowest.push_back(std::move(group));
  std::stable_sort(facts.slowest.begin(), facts.slowest.end(),
                   [](const OpGroup& a, const OpGroup& b) { return a.time_ns > b.time_ns; });
}

void count_saves(const Trace& trace, TraceFacts& facts) {
  std::vector<char> seen(trace.storages.size(), 0);
  std::map<std::string, KeepGroup> kept;
  for (const TraceSave& save : trace.saves) {
    char& counted = seen[static_cast<size_t>(save.storage)];
    if (counted != 0) continue;
    counted = 1;
    const TraceStorage& storage = at(trace.storages, save.storage);
    ++facts.saved_storages;
    facts.saved_bytes += storage.bytes;
    if (storage.recomputable) {
      ++facts.droppable_storages;
      facts.droppable_bytes += storage.bytes;
      continue;
    }
    const std::string reason = !storage.keep_reason.empty() ? storage.keep_reason
                               : storage.resident           ? "alive across steps"
                                                            : "no reason given";
    KeepGroup& group = kept[reason];
    group.reason = reason;
    ++group.count;
    group.bytes += storage.bytes;
  }
  for (auto& [reason, group] : kept) facts.kept.push_back(std::move(group));
  std::stable_sort(facts.kept.begin(), facts.kept.end(),
                   [](const KeepGroup& a, const KeepGroup& b) { return a.bytes > b.bytes; });
}

}  // namespace

TraceFacts facts_of(const Trace& trace) {
  TraceFacts facts;
  count_ops(trace, facts);
  count_saves(trace, facts);
  for (const TraceStorage& storage : trace.storages) {
    if (storage.resident) facts.resident_bytes += storage.bytes;
  }
  const planner::Simulator simulator(trace);
  const planner::SimulationResult plain =
      simulator.simulate(planner::DecisionTable(trace.storages.size()), {.record_live_set = true});
  facts.peak_requested_bytes = plain.peak_requested_bytes;
  facts.live_at_peak = plain.live_at_peak;
  return facts;
}

std::string origin_of(const Trace& trace, StorageId id) {
  const TraceStorage& storage = at(trace.storages, id);
  std::string text = to_string(storage.kind);
  if (storage.resident || storage.writers.empty()) return text + ", from before the step";
  const OpId writer = storage.writers.front();
  const TraceOp& op = at(trace.ops, writer);
  return text + " of " + printable(op.name) + " (" + to_string(op.phase) + " op " +
         std::to_string(writer) + ")";
}

int64_t recipe_ns(const Trace& trace, StorageId id) {
  int64_t sum = 0;
  for (const OpId writer : at(trace.storages, id).writers) sum += at(trace.ops, writer).time_ns();
  return sum;
}

}  // namespace lowtide::cli
