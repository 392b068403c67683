#include "planner/checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/checker_joint.h"

namespace lowtide::planner {
namespace {

// The step told event by event with sets and maps. Deliberately naive, and deliberately not sharing
// a line with the simulator: two walks that agree to the byte are the evidence.
class Walkthrough {
 public:
  Walkthrough(const Trace& trace, const std::map<StorageId, bool>& dropped_keep)
      : trace_(trace), dropped_keep_(dropped_keep) {
    for (int32_t e = 0; e < static_cast<int32_t>(trace.events.size()); ++e) {
      if (trace.events[e].kind == EventKind::op_begin) begin_[trace.events[e].id] = e;
    }
  }

  void run() {
    for (int32_t s = 0; s < static_cast<int32_t>(trace_.storages.size()); ++s) {
      if (trace_.storages[s].resident) {
        present_.insert(s);
        used_.insert(s);
        add(s);
      }
    }
    for (const TraceEvent& event : trace_.events) tell(event);
  }

  [[nodiscard]] int64_t peak() const { return peak_; }
  [[nodiscard]] int64_t recompute_ns() const { return recompute_ns_; }

 private:
  void tell(const TraceEvent& event) {
    const int32_t id = event.id;
    switch (event.kind) {
      case EventKind::op_begin:
        break;
      case EventKind::op_end:
        for (const StorageId s : written_by(id)) ++content_[s];
        break;
      case EventKind::alloc:
        add(id);
        present_.insert(id);
        used_.insert(id);
        break;
      case EventKind::free:
        if (present_.erase(id) == 1) live_ -= trace_.storages[id].bytes;
        break;
      case EventKind::pack:
        saves_[trace_.saves[id].storage].insert(id);
        break;
      case EventKind::unpack: {
        const StorageId s = trace_.saves[id].storage;
        if (dropped_keep_.count(s) == 1 && present_.count(s) == 0) {
          rebuild(s, trace_.saves[id].version);
        }
        used_.insert(s);
        break;
      }
      case EventKind::drop_save:
        saves_[trace_.saves[id].storage].erase(id);
        let_go(trace_.saves[id].storage);
        break;
      case EventKind::release:
        used_.erase(id);
        let_go(id);
        break;
    }
  }

  // A dropped storage stays only while something uses it, or a rebuilt value is kept for its saves.
  void let_go(StorageId s) {
    if (dropped_keep_.count(s) == 0 || used_.count(s) == 1) return;
    if (rebuilt_.count(s) == 1 && kept_for_saves(s)) return;
    if (present_.erase(s) == 1) live_ -= trace_.storages[s].bytes;
  }

  bool kept_for_saves(StorageId s) const {
    const auto decision = dropped_keep_.find(s);
    const auto saves = saves_.find(s);
    return decision != dropped_keep_.end() && decision->second && saves != saves_.end() &&
           !saves->second.empty();
  }

  void rebuild(StorageId target, int32_t version) {
    // Which states are missing, and which ops make them.
    std::set<OpId> ops;
    std::map<StorageId, int32_t> wanted;
    std::vector<StorageRef> pending = {{target, version}};
    std::set<std::pair<StorageId, int32_t>> seen;
    while (!pending.empty()) {
      const StorageRef ref = pending.back();
      pending.pop_back();
      if (!seen.insert({ref.storage, ref.version}).second) continue;
      wanted[ref.storage] = std::max(wanted[ref.storage], ref.version);
      for (int32_t k = 0; k < ref.version; ++k) {
        const OpId op = trace_.storages[ref.storage].writers[k];
        ops.insert(op);
        for (const StorageRef& input : missing_inputs(op)) pending.push_back(input);
      }
    }
    std::map<StorageId, OpId> last_touch;
    for (const OpId op : ops) {
      for (const StorageRef& input : rebuildable_inputs(op)) last_touch[input.storage] = op;
      for (const StorageId s : written_by(op)) last_touch[s] = op;
    }

    std::map<StorageId, int32_t> buffers;  // replay buffer -> writers run on it
    std::set<StorageId> kept;
    for (const OpId op : ops) {
      const TraceOp& replayed = trace_.ops[op];
      recompute_ns_ += replayed.replay_ns != 0 ? replayed.replay_ns
                                               : std::max(replayed.host_ns, replayed.device_ns);
      for (const StorageId s : run_allocations(op)) buffers[s] = 0;
      for (const StorageId s : written_by(op)) {
        if (buffers.count(s) == 1) ++buffers[s];
      }
      for (auto it = buffers.begin(); it != buffers.end();) {
        const auto [s, written] = *it;
        if (s == target || last_touch[s] != op) {
          ++it;
          continue;
        }
        if (present_.count(s) == 0 && written == content_[s] && kept_for_saves(s)) {
          kept.insert(s);
        } else {
          live_ -= trace_.storages[s].bytes;
        }
        it = buffers.erase(it);
      }
    }
    for (const StorageId s : kept) {
      present_.insert(s);
      rebuilt_.insert(s);
    }
    if (buffers.count(target) == 1) {
      present_.insert(target);
      rebuilt_.insert(target);
    }
  }

  // The op's own allocations and frees; returns the outputs that are alive at its end.
  std::vector<StorageId> run_allocations(OpId op) {
    std::set<StorageId> freed_inside;
    std::set<StorageId> allocated_inside;
    for (int32_t e = begin_.at(op) + 1; trace_.events[e].kind != EventKind::op_end; ++e) {
      if (trace_.events[e].kind == EventKind::free) freed_inside.insert(trace_.events[e].id);
      if (trace_.events[e].kind == EventKind::alloc) allocated_inside.insert(trace_.events[e].id);
    }
    std::vector<StorageId> outputs;
    for (const StorageId s : trace_.ops[op].outputs) {
      if (!is_writer(op, s) || freed_inside.count(s) == 1) continue;
      outputs.push_back(s);
      if (allocated_inside.count(s) == 0) add(s);
    }
    std::set<StorageId> temporaries;
    for (int32_t e = begin_.at(op) + 1; trace_.events[e].kind != EventKind::op_end; ++e) {
      const StorageId s = trace_.events[e].id;
      if (trace_.events[e].kind == EventKind::alloc) {
        add(s);
        if (std::find(outputs.begin(), outputs.end(), s) == outputs.end()) temporaries.insert(s);
      } else if (trace_.events[e].kind == EventKind::free && temporaries.erase(s) == 1) {
        live_ -= trace_.storages[s].bytes;
      }
    }
    for (const StorageId s : temporaries) live_ -= trace_.storages[s].bytes;
    return outputs;
  }

  bool is_created(StorageId s) const {
    const auto& writers = trace_.storages[s].writers;
    if (writers.empty()) return false;
    const auto& outputs = trace_.ops[writers.front()].outputs;
    return std::find(outputs.begin(), outputs.end(), s) != outputs.end();
  }

  bool is_writer(OpId op, StorageId s) const {
    const auto& writers = trace_.storages[s].writers;
    return is_created(s) && std::find(writers.begin(), writers.end(), op) != writers.end();
  }

  std::set<StorageId> written_by(OpId op) const {
    std::set<StorageId> written;
    for (const StorageId s : trace_.ops[op].outputs) {
      if (is_writer(op, s)) written.insert(s);
    }
    for (const StorageId s : trace_.ops[op].writes) {
      if (is_writer(op, s)) written.insert(s);
    }
    return written;
  }

  // States of created storages that this op needs, and what it writes over.
  std::vector<StorageRef> rebuildable_inputs(OpId op) const {
    std::vector<StorageRef> refs;
    for (const StorageRef& ref : trace_.ops[op].inputs) {
      if (ref.version > 0 && is_created(ref.storage)) refs.push_back(ref);
    }
    for (const StorageId s : trace_.ops[op].writes) {
      if (!is_writer(op, s)) continue;
      const auto& writers = trace_.storages[s].writers;
      const auto position = std::find(writers.begin(), writers.end(), op) - writers.begin();
      if (position > 0) refs.push_back({s, static_cast<int32_t>(position)});
    }
    return refs;
  }

  // Those that are not in memory as they are.
  std::vector<StorageRef> missing_inputs(OpId op) {
    std::vector<StorageRef> missing;
    for (const StorageRef& ref : rebuildable_inputs(op)) {
      if (present_.count(ref.storage) == 1 && content_[ref.storage] == ref.version) continue;
      missing.push_back(ref);
    }
    return missing;
  }

  void add(StorageId s) {
    live_ += trace_.storages[s].bytes;
    peak_ = std::max(peak_, live_);
  }

  const Trace& trace_;
  const std::map<StorageId, bool>& dropped_keep_;
  std::map<OpId, int32_t> begin_;
  std::set<StorageId> present_;
  std::set<StorageId> used_;
  std::set<StorageId> rebuilt_;
  std::map<StorageId, std::set<SaveId>> saves_;
  std::map<StorageId, int32_t> content_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  int64_t recompute_ns_ = 0;
};

std::string number(int64_t value) { return std::to_string(value); }

CheckResult fail(CheckResult result, Verdict verdict, std::string detail) {
  result.verdict = verdict;
  result.detail = std::move(detail);
  return result;
}

}  // namespace

CheckResult check_plan(const Trace& trace, const Plan& plan) {
  CheckResult result;
  if (plan.trace_fingerprint != trace.fingerprint()) {
    return fail(result, Verdict::wrong_trace,
                "the plan is for trace " + fingerprint_text(plan.trace_fingerprint) +
                    ", this trace is " + fingerprint_text(trace.fingerprint()));
  }
  std::set<StorageId> saved;
  for (const TraceSave& save : trace.saves) saved.insert(save.storage);
  std::map<StorageId, bool> dropped_keep;
  for (const Decision& decision : plan.decisions) {
    const StorageId s = decision.storage;
    if (s < 0 || s >= static_cast<StorageId>(trace.storages.size())) {
      return fail(result, Verdict::unknown_storage,
                  "storage " + number(s) + ": the trace has " +
                      number(static_cast<int64_t>(trace.storages.size())) + " storages");
    }
    if (decision.action == Action::save) continue;
    if (saved.count(s) == 0) {
      return fail(result, Verdict::not_saved, "storage " + number(s) + " has no saves to drop");
    }
    if (!trace.storages[s].recomputable) {
      return fail(result, Verdict::not_recomputable,
                  "storage " + number(s) + " must be kept: " + trace.storages[s].keep_reason);
    }
    dropped_keep[s] = decision.keep_after_recompute;
  }

  if (trace.execution == Execution::joint) {
    const JointFigures figures = tell_joint(trace, dropped_keep);
    result.peak_requested_bytes = figures.peak_requested_bytes;
    result.recompute_ns = figures.extra_ns;
  } else {
    Walkthrough walkthrough(trace, dropped_keep);
    walkthrough.run();
    result.peak_requested_bytes = walkthrough.peak();
    result.recompute_ns = walkthrough.recompute_ns();
  }

  const Predicted& predicted = plan.predicted;
  if (predicted.peak_requested_bytes != result.peak_requested_bytes) {
    return fail(result, Verdict::wrong_peak,
                "predicted requested peak " + number(predicted.peak_requested_bytes) +
                    " bytes, checked " + number(result.peak_requested_bytes) + " bytes");
  }
  if (predicted.peak_reserved_bytes < result.peak_requested_bytes) {
    return fail(result, Verdict::wrong_peak,
                "predicted reserved peak " + number(predicted.peak_reserved_bytes) +
                    " bytes is below the requested peak " + number(result.peak_requested_bytes));
  }
  if (predicted.recompute_ns != result.recompute_ns) {
    return fail(result, Verdict::wrong_time,
                "predicted recompute " + number(predicted.recompute_ns) + " ns, checked " +
                    number(result.recompute_ns) + " ns");
  }
  const int64_t step_ns =
      trace.step_ns + trace.watch_ns + result.recompute_ns + predicted.memory_ns;
  if (predicted.memory_ns < 0 || predicted.watch_ns != trace.watch_ns ||
      predicted.step_ns != step_ns) {
    return fail(result, Verdict::wrong_time,
                "predicted step " + number(predicted.step_ns) + " ns, of which memory " +
                    number(predicted.memory_ns) + " ns and watching " + number(predicted.watch_ns) +
                    " ns, checked " + number(step_ns) + " ns and " + number(trace.watch_ns) +
                    " ns");
  }
  const int64_t need =
      predicted.peak_reserved_bytes + trace.outside_bytes + plan.account.reserve_bytes;
  if (need > plan.budget_bytes) {
    return fail(
        result, Verdict::over_budget,
        "the plan needs " + number(need) + " bytes (peak " + number(predicted.peak_reserved_bytes) +
            ", outside " + number(trace.outside_bytes) + ", reserve " +
            number(plan.account.reserve_bytes) + "), the budget is " + number(plan.budget_bytes));
  }
  return result;
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::wrong_trace:
      return "wrong trace";
    case Verdict::unknown_storage:
      return "unknown storage";
    case Verdict::not_recomputable:
      return "not recomputable";
    case Verdict::not_saved:
      return "not saved";
    case Verdict::over_budget:
      return "over budget";
    case Verdict::wrong_peak:
      return "wrong peak";
    case Verdict::wrong_time:
      return "wrong time";
  }
  return "unknown";
}

}  // namespace lowtide::planner
