#include "planner/checker_joint.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace lowtide::planner {
namespace {

// The program of a plan, written down line by line, and then read twice: once from its end to see
// who is needed how long, once from its start to count bytes. Sets and maps, on purpose.
class Program {
 public:
  Program(const Trace& trace, const std::map<StorageId, bool>& dropped_keep)
      : trace_(trace), dropped_keep_(dropped_keep) {
    for (const TraceSave& save : trace.saves) saved_.insert(save.storage);
    std::set<StorageId> freed;
    for (const TraceEvent& event : trace.events) {
      if (event.kind == EventKind::free) freed.insert(event.id);
    }
    for (int32_t s = 0; s < static_cast<int32_t>(trace.storages.size()); ++s) {
      if (!trace.storages[s].writers.empty() && freed.count(s) == 0) lasting_.insert(s);
    }
  }

  void write() {
    const std::set<OpId> forward = forward_ops();
    for (int32_t o = 0; o < static_cast<int32_t>(trace_.ops.size()); ++o) {
      if (is_forward(o)) {
        if (forward.count(o) == 1) lines_.push_back({o, -1});
        continue;
      }
      std::set<OpId> again;
      want(o, again);
      for (const OpId u : again) lines_.push_back({u, o});
      lines_.push_back({o, o});
      for (const OpId u : again) {
        for (const StorageId s : trace_.ops[u].outputs) {
          const auto decision = dropped_keep_.find(s);
          if (decision == dropped_keep_.end() || decision->second) have_again_.insert(s);
        }
      }
    }
  }

  [[nodiscard]] int64_t time_ns() const {
    int64_t sum = 0;
    for (const Line& line : lines_) {
      sum += std::max(trace_.ops[line.op].host_ns, trace_.ops[line.op].device_ns);
    }
    return sum;
  }

  [[nodiscard]] int64_t peak() const {
    // Names: (storage, -1) as the forward or the backward made it, (storage, line) as recomputed.
    using Name = std::pair<StorageId, int32_t>;
    std::map<StorageId, Name> again;
    std::map<Name, int32_t> last;
    int32_t number = 0;
    for (const Line& line : lines_) {
      for (const StorageRef& ref : trace_.ops[line.op].inputs) {
        if (trace_.storages[ref.storage].writers.empty()) continue;
        const bool copy = line.slot >= 0 && missing_in_backward(ref.storage);
        last[copy ? again.at(ref.storage) : Name{ref.storage, -1}] = number;
      }
      for (const StorageId s : trace_.ops[line.op].outputs) {
        const Name name{s, is_again(line) ? number : -1};
        last[name] = number;
        if (is_again(line) && current(again, s, line.slot)) again[s] = name;
      }
      ++number;
    }
    int64_t live = 0;
    for (const TraceStorage& storage : trace_.storages) {
      if (storage.resident) live += storage.bytes;
    }
    int64_t peak = live;
    std::map<int32_t, std::set<Name>> ends;
    for (const auto& [name, end] : last) {
      if (name.second >= 0 || lasting_.count(name.first) == 0) ends[end].insert(name);
    }
    number = 0;
    for (const Line& line : lines_) {
      for (const StorageId s : trace_.ops[line.op].outputs) live += trace_.storages[s].bytes;
      peak = std::max(peak, live + trace_.ops[line.op].workspace_bytes);
      for (const Name& name : ends[number++]) live -= trace_.storages[name.first].bytes;
    }
    return peak;
  }

 private:
  struct Line {
    OpId op;
    OpId slot;  // -1 in the forward
  };

  bool is_forward(OpId o) const { return trace_.ops[o].phase == Phase::forward; }
  bool is_again(const Line& line) const { return line.slot >= 0 && line.op != line.slot; }
  bool is_kept(StorageId s) const {
    return lasting_.count(s) == 1 || (saved_.count(s) == 1 && dropped_keep_.count(s) == 0);
  }
  bool missing_in_backward(StorageId s) const {
    return is_forward(trace_.storages[s].writers.front()) && !is_kept(s);
  }

  // Whether this run's output becomes the value that later readers see: the first run, and each
  // slot's own where the keep bit is off.
  bool current(const std::map<StorageId, std::pair<StorageId, int32_t>>& again, StorageId s,
               OpId slot) const {
    if (!missing_in_backward(s)) return false;
    const auto found = again.find(s);
    if (found == again.end()) return true;
    const auto decision = dropped_keep_.find(s);
    const bool keep = decision == dropped_keep_.end() || decision->second;
    return !keep && lines_[found->second.second].slot != slot;
  }

  std::set<OpId> forward_ops() const {
    std::set<StorageId> wanted;
    std::set<OpId> ops;
    for (int32_t o = static_cast<int32_t>(trace_.ops.size()) - 1; o >= 0; --o) {
      if (!is_forward(o)) continue;
      const OpFlags& flags = trace_.ops[o].flags;
      bool runs = flags.effect || flags.collective || flags.mutates;
      for (const StorageId s : trace_.ops[o].outputs) {
        runs = runs || is_kept(s) || wanted.count(s) == 1;
      }
      if (!runs) continue;
      ops.insert(o);
      for (const StorageRef& ref : trace_.ops[o].inputs) wanted.insert(ref.storage);
    }
    return ops;
  }

  void want(OpId op, std::set<OpId>& again) const {
    std::vector<OpId> pending = {op};
    while (!pending.empty()) {
      const OpId reader = pending.back();
      pending.pop_back();
      for (const StorageRef& ref : trace_.ops[reader].inputs) {
        const StorageId s = ref.storage;
        if (trace_.storages[s].writers.empty()) continue;
        if (!missing_in_backward(s) || have_again_.count(s) == 1) continue;
        const OpId producer = trace_.storages[s].writers.front();
        if (again.insert(producer).second) pending.push_back(producer);
      }
    }
  }

  const Trace& trace_;
  const std::map<StorageId, bool>& dropped_keep_;
  std::set<StorageId> saved_;
  std::set<StorageId> lasting_;
  std::set<StorageId> have_again_;  // recomputed and kept
  std::vector<Line> lines_;
};

}  // namespace

JointFigures tell_joint(const Trace& trace, const std::map<StorageId, bool>& dropped_keep) {
  const std::map<StorageId, bool> nothing;
  Program plain(trace, nothing);
  plain.write();
  Program program(trace, dropped_keep);
  program.write();
  return {program.peak(), program.time_ns() - plain.time_ns()};
}

}  // namespace lowtide::planner
