// The relaxation of a joint trace (rules: joint_walk.h). Variables, all in [0, 1] but the last:
//   x   a save is dropped
//   f   an op runs in the forward that only needs to where something kept wants it
//   a   an op has been recomputed by a slot (replay_windows.h)
//   b   a dropped value has been recomputed by a slot before its own first reader
//   v   a dropped value stays in the forward for a reader that may not run
//   z   a dropped value's keep bit is off (space `general`)
//   n   how often an op is recomputed (space `general`)
// Why no plan of the space is excluded: set each variable to what the plan does. Rows then say what
// joint_walk does of itself: what is dropped and read must have been recomputed, and so must what
// it is recomputed from unless that is kept. Every span adds bytes that the plan surely holds at
// that moment, or takes away bytes that it may not hold, so that the sum of a moment is at most
// what the plan holds there. Costs are those of the plan, or less.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/index.h"
#include "planner/joint_graph.h"
#include "planner/relaxation.h"
#include "planner/replay_moments.h"
#include "planner/replay_windows.h"

namespace lowtide::planner {
namespace {

class JointRelaxation {
 public:
  JointRelaxation(const JointGraph& graph, Space space, size_t width)
      : graph_(graph),
        trace_(graph.trace()),
        general_(space == Space::general),
        windows_(trace_.ops.size(), width),
        mandatory_(trace_.ops.size()),
        runs_(trace_.ops.size(), kNone),
        count_(trace_.ops.size(), kNone),
        dropped_(trace_.storages.size(), kNone),
        freed_(trace_.storages.size(), kNone) {}

  Relaxation build() {
    mark_mandatory();
    open_windows();
    place_moments();
    add_variables();
    for (OpId op = 0; op < graph_.op_count(); ++op) {
      if (graph_.forward(op)) add_rows(op);
    }
    for (size_t s = 0; s < trace_.storages.size(); ++s) {
      if (trace_.storages[s].resident) hold(0, moments(), trace_.storages[s].rounded_bytes);
    }
    for (OpId op = 0; op < graph_.op_count(); ++op) {
      add_run(op);
      for (const StorageId s : graph_.outputs(op)) {
        if (bytes(s) > 0) add_life(s);
      }
    }
    sum_up();
    return std::move(lp_);
  }

 private:
  [[nodiscard]] int64_t bytes(StorageId s) const { return trace_.storages[at(s)].rounded_bytes; }
  // Made by the forward, and not surely kept.
  [[nodiscard]] bool droppable(StorageId s) const {
    return graph_.forward(graph_.producer(s)) && !graph_.lasts(s) &&
           (!graph_.saved(s) || trace_.storages[at(s)].recomputable);
  }
  [[nodiscard]] int32_t moments() const { return moments_.moment.back() + 1; }

  void mark_mandatory() {
    for (OpId op = graph_.op_count() - 1; op >= 0; --op) {
      if (!graph_.forward(op)) continue;
      const auto outputs = graph_.outputs(op);
      mandatory_[at(op)] =
          graph_.anchored(op) || std::any_of(outputs.begin(), outputs.end(), [&](StorageId s) {
            const auto readers = graph_.forward_readers(s);
            return !droppable(s) || std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
              return mandatory_[at(reader)] != 0;
            });
          });
    }
  }

  void open_windows() {
    for (OpId op = graph_.op_count() - 1; op >= 0; --op) {
      if (!graph_.forward(op)) continue;
      for (const StorageId s : graph_.outputs(op)) {
        if (!droppable(s)) continue;
        for (const OpId slot : graph_.slot_readers(s)) {
          windows_.add(op, slot);
          if (!general_) break;  // it stays to its last reader
        }
        for (const OpId reader : graph_.forward_readers(s)) {
          windows_.inherit(op, reader, [](int32_t) { return true; });
        }
      }
      windows_.close(op);
    }
  }

  // A slot is preceded by one moment for each op it may recompute.
  void place_moments() {
    moments_.fill_chains(windows_, trace_.ops.size(), trace_.ops.size());
    int32_t next = 0;
    for (const auto& ops : moments_.chain) {
      next += static_cast<int32_t>(ops.size());
      moments_.moment.push_back(next++);
    }
    lp_.base_bytes.assign(at(next) + 1, 0);
  }

  // Moments [begin, end) surely hold so much. Until `sum_up`, base_bytes are differences: lives of
  // long steps cover too many moments to visit each.
  void hold(int32_t begin, int32_t end, int64_t amount) {
    if (begin >= end) return;
    lp_.base_bytes[at(begin)] += amount;
    lp_.base_bytes[at(end)] -= amount;
  }

  void sum_up() {
    std::partial_sum(lp_.base_bytes.begin(), lp_.base_bytes.end(), lp_.base_bytes.begin());
    lp_.base_bytes.pop_back();
  }

  void add_variables() {
    std::vector<int64_t> replay_cost(trace_.ops.size());
    int32_t most_readers = 0;
    for (size_t s = 0; s < trace_.storages.size(); ++s) {
      const auto readers = graph_.slot_readers(static_cast<StorageId>(s)).size();
      most_readers = std::max(most_readers, static_cast<int32_t>(readers));
    }
    lp_.base_ns = -graph_.plain_ns();
    for (OpId op = 0; op < graph_.op_count(); ++op) {
      const int64_t ns = graph_.time_ns(op);
      if (!graph_.forward(op) || mandatory_[at(op)] != 0) {
        lp_.base_ns += ns;
      } else {
        runs_[at(op)] = lp_.add_variable(ns);
      }
      if (windows_.slots(op).empty()) continue;
      if (general_) {
        count_[at(op)] = lp_.add_variable(ns, most_readers + 2);
      } else {
        replay_cost[at(op)] = ns;
      }
    }
    windows_.add_variables(lp_, replay_cost);
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      const auto s = static_cast<StorageId>(i);
      if (trace_.storages[i].writers.empty() || !droppable(s)) continue;
      if (graph_.saved(s)) dropped_[i] = lp_.add_variable(0);
      if (general_ && !graph_.slot_readers(s).empty()) freed_[i] = lp_.add_variable(0);
      if (graph_.saved(s)) lp_.choices.push_back({s, dropped_[i], freed_[i]});
    }
  }

  // What has to run, and to run again.
  void add_rows(OpId op) {
    for (const StorageId s : graph_.outputs(op)) {
      if (!droppable(s)) continue;
      const int32_t x = dropped_[at(s)];
      if (runs_[at(op)] != kNone) {
        if (x != kNone) lp_.add_row({{runs_[at(op)], 1}, {x, 1}}, 1);
        for (const OpId reader : graph_.forward_readers(s)) {
          lp_.add_implication(runs_[at(reader)], runs_[at(op)]);
        }
      }
      if (graph_.slot_readers(s).empty()) continue;
      const OpId first_reader = graph_.slot_readers(s).front();
      const int32_t replayed = windows_.variable_from(op, first_reader);
      if (x != kNone) {
        lp_.add_implication(x, replayed);
      } else if (replayed != kNone) {
        lp_.add_row({{replayed, 1}}, 1);
      }
      if (general_) add_counts(op, s);
    }
    const auto slots = windows_.slots(op);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int32_t replayed = windows_.variable(op, i);
      for (const StorageId s : graph_.reads(op)) {
        if (!droppable(s)) continue;
        const int32_t source = windows_.variable_from(graph_.producer(s), slots[i]);
        if (dropped_[at(s)] == kNone) {
          lp_.add_implication(replayed, source);
        } else if (source != kNone) {
          lp_.add_row({{source, 1}, {replayed, -1}, {dropped_[at(s)], -1}}, -1);
        }
      }
    }
    if (count_[at(op)] != kNone) {
      lp_.add_implication(windows_.last_variable(op), count_[at(op)]);
    }
  }

  // A value that is freed after each use is recomputed for every slot that reads it, and for those
  // before them that need it for something else.
  void add_counts(OpId op, StorageId s) {
    const auto readers = static_cast<int32_t>(graph_.slot_readers(s).size());
    const int32_t z = freed_[at(s)];
    if (dropped_[at(s)] != kNone) lp_.add_implication(z, dropped_[at(s)]);
    if (count_[at(op)] == kNone) return;
    lp_.add_row({{count_[at(op)], 1}, {z, -readers}}, 0);
    const int32_t early = windows_.variable_before(op, graph_.slot_readers(s).front());
    if (early != kNone) {
      lp_.add_row({{count_[at(op)], 1}, {z, -readers - 1}, {early, -1}}, -1);
    }
  }

  // The moments at which an op runs: its own, and those of its replays.
  void add_run(OpId op) {
    const int64_t workspace = trace_.ops[at(op)].workspace_bytes;
    const int32_t m = moments_.of(op);
    if (runs_[at(op)] == kNone) {
      hold(m, m + 1, workspace);
    } else {
      lp_.add_span(runs_[at(op)], m, m + 1, workspace);
    }
    int64_t own = workspace;
    for (const StorageId s : graph_.outputs(op)) own += bytes(s);
    const auto slots = windows_.slots(op);
    for (size_t i = windows_.truncated(op) ? 1 : 0; i < slots.size(); ++i) {
      windows_.add_span(lp_, op, i, moments_.replay(slots[i], op),
                        moments_.replay(slots[i], op) + 1, own);
      for (const StorageId s : graph_.reads(op)) add_replay_input(op, i, s);
    }
  }

  // What a replayed op reads is there, since its producer was replayed or, where that was not,
  // since the reader before. Only where `add_life` does not count it.
  void add_replay_input(OpId op, size_t i, StorageId s) {
    const OpId producer = graph_.producer(s);
    if (!graph_.forward(producer) || graph_.lasts(s)) return;
    const OpId slot = windows_.slots(op)[i];
    const auto readers = graph_.slot_readers(s);
    if (!readers.empty() && slot <= readers.back()) return;
    const auto forward_readers = graph_.forward_readers(s);
    if (forward_readers.back() > slot) return;  // of a graph that runs later
    const int32_t end = moments_.replay(slot, op) + 1;
    int32_t begin = end - 1;
    if (droppable(s)) {
      OpId before = producer;
      for (const OpId reader : forward_readers) {
        if (reader >= op) break;
        if (moments_.replays(slot, reader)) before = reader;
      }
      if (moments_.replays(slot, before)) {
        begin = moments_.replay(slot, before) + 1;
      }
    }
    windows_.add_span(lp_, op, i, begin, end, bytes(s));
  }

  // The moments at which a value is in memory.
  void add_life(StorageId s) {
    const OpId producer = graph_.producer(s);
    const int32_t born = moments_.of(producer);
    const auto slot_readers = graph_.slot_readers(s);
    if (graph_.lasts(s)) return hold(born, moments(), bytes(s));
    int32_t end = slot_readers.empty() ? born + 1 : moments_.of(slot_readers.back()) + 1;
    if (!droppable(s)) {
      for (const OpId reader : graph_.forward_readers(s)) {
        if (mandatory_[at(reader)] != 0) end = std::max(end, moments_.of(reader) + 1);
      }
      return hold(born, end, bytes(s));
    }
    // In the forward: to the last reader that surely runs.
    int32_t gap = born + 1;
    if (runs_[at(producer)] == kNone) {
      for (const OpId reader : graph_.forward_readers(s)) {
        if (mandatory_[at(reader)] != 0) gap = moments_.of(reader) + 1;
      }
      hold(born, gap, bytes(s));
    } else {
      lp_.add_span(runs_[at(producer)], born, gap, bytes(s));
    }
    int32_t gap_end = gap;
    if (!slot_readers.empty()) {
      gap_end = std::max(gap, moments_.after_replay(slot_readers.front(), producer));
      const int32_t x = dropped_[at(s)];
      if (x != kNone) {
        hold(gap, end, bytes(s));
        lp_.add_span(x, gap, gap_end, -bytes(s));
      } else {
        hold(gap_end, end, bytes(s));
      }
      add_early_replays(s, gap, gap_end);
      if (general_) add_gaps_between_readers(s, gap);
    }
    add_optional_readers(s, gap, slot_readers.empty() ? moments() : gap_end);
  }

  // In the forward, for readers that run only where somebody wants them.
  void add_optional_readers(StorageId s, int32_t gap, int32_t gap_end) {
    const int32_t x = graph_.slot_readers(s).empty() ? kNone : dropped_[at(s)];
    int32_t begin = gap;
    for (const OpId reader : graph_.forward_readers(s)) {
      const int32_t end = std::min(moments_.of(reader) + 1, gap_end);
      if (begin >= end) continue;
      int32_t stays = runs_[at(reader)];
      if (x != kNone) {
        // Where it is kept, it is counted already.
        stays = lp_.add_variable(0);
        lp_.add_row({{stays, 1}, {runs_[at(reader)], -1}, {x, -1}}, -1);
      }
      lp_.add_span(stays, begin, end, bytes(s));
      begin = end;
    }
  }

  // Recomputed for something else before its own first reader, a value stays.
  void add_early_replays(StorageId s, int32_t gap, int32_t gap_end) {
    const OpId producer = graph_.producer(s);
    const auto slots = windows_.slots(producer);
    const OpId first_reader = graph_.slot_readers(s).front();
    const int32_t x = dropped_[at(s)];
    for (size_t i = 0; i < slots.size() && slots[i] < first_reader; ++i) {
      const int32_t begin = std::max(gap, moments_.after_replay(slots[i], producer));
      const int32_t end = i + 1 < slots.size()
                              ? std::min(gap_end, moments_.after_replay(slots[i + 1], producer))
                              : gap_end;
      if (begin >= end) continue;
      // An op is replayed only for a value that is dropped: where it makes one, there is no doubt.
      const bool doubt = x != kNone && graph_.outputs(producer).size() > 1;
      const int32_t there =
          lp_.add_staying(windows_.variable(producer, i), doubt ? x : kNone, freed_[at(s)]);
      lp_.add_span(there, begin, end, bytes(s));
    }
  }

  void add_gaps_between_readers(StorageId s, int32_t gap) {
    const auto readers = graph_.slot_readers(s);
    for (size_t i = 1; i < readers.size(); ++i) {
      const int32_t begin = std::max(gap, moments_.of(readers[i - 1]) + 1);
      const int32_t end = moments_.after_replay(readers[i], graph_.producer(s));
      lp_.add_span(freed_[at(s)], begin, end, -bytes(s));
    }
  }

  const JointGraph& graph_;
  const Trace& trace_;
  const bool general_;
  Relaxation lp_;
  ReplayWindows windows_;
  std::vector<char> mandatory_;
  std::vector<int32_t> runs_, count_;     // f, n: variables by op
  std::vector<int32_t> dropped_, freed_;  // x, z: variables by storage
  ReplayMoments moments_;                 // of each op
};

}  // namespace

Relaxation relax_joint(const JointGraph& graph, Space space, size_t width) {
  return JointRelaxation(graph, space, width).build();
}

}  // namespace lowtide::planner
