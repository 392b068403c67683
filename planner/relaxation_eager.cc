// The relaxation of an eager trace (rules: simulator.h). Variables, all in [0, 1] but the last:
//   x   a candidate is dropped
//   a   an op has been replayed by an unpack (replay_windows.h; a slot is an unpack event)
//   b   a dropped value has been rebuilt by a replay for something else before its own first unpack
//   z   a dropped value's keep bit is off (space `general`)
//   n   how often an op is replayed (space `general`)
// Why no plan of the space is excluded: set each variable to what the plan does, and the rows say
// what the simulator does of itself. Live bytes are those of the plain step, less the gaps of what
// is dropped (storage_life.h), plus what a replay surely holds while an op of it runs. Each op's
// time counts once where the plan may replay it again: less than the plan pays.
// Where a storage's recipe and its saves may disagree (written after it was let go, saved at an
// older version), dropping it is taken to be free.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/index.h"
#include "planner/problem.h"
#include "planner/relaxation.h"
#include "planner/replay_moments.h"
#include "planner/replay_windows.h"
#include "planner/storage_life.h"

namespace lowtide::planner {
namespace {

class EagerRelaxation {
 public:
  EagerRelaxation(const Problem& problem, Space space, size_t width)
      : problem_(problem),
        trace_(problem.trace()),
        general_(space == Space::general),
        values_(trace_.storages.size()),
        op_end_(trace_.ops.size()),
        count_(trace_.ops.size(), kNone),
        windows_(trace_.ops.size(), width) {}

  Relaxation build() {
    read_events();
    for (size_t s = 0; s < values_.size(); ++s) {
      if (values_[s].droppable) live(static_cast<StorageId>(s));
    }
    open_windows();
    place_moments();
    add_variables();
    for (OpId op = 0; at(op) < trace_.ops.size(); ++op) {
      if (!windows_.slots(op).empty()) add_rows(op), add_replays(op);
    }
    for (const StorageId s : problem_.candidates()) add_candidate(s);
    return std::move(lp_);
  }

 private:
  struct Value {
    bool droppable = false;  // a plan may drop it
    bool regular = false;    // rebuilt means: every writer replayed, and its value is the last one
    int32_t born = INT32_MAX;
    int32_t dies = 0;
    std::vector<int32_t> writes;  // op_end events of its writers so far
    std::vector<int32_t> events;
    StorageLife kept, freed;  // by keep bit
    int32_t x = kNone, z = kNone;
    [[nodiscard]] int32_t death() const {
      return kept.gaps.empty() ? INT32_MAX : kept.gaps[0].begin;
    }
  };
  // Events strictly between which the plain step has a storage at a version.
  struct Interval {
    int32_t after = 0;
    int32_t before = 0;
    [[nodiscard]] bool holds(int32_t event) const { return after < event && event < before; }
    [[nodiscard]] bool misses(int32_t first, int32_t last) const {
      return last <= after || first >= before || after >= before - 1;
    }
  };

  Value& value(StorageId s) { return values_[at(s)]; }
  [[nodiscard]] int64_t bytes(StorageId s) const { return trace_.storages[at(s)].rounded_bytes; }

  void read_events() {
    for (const TraceSave& save : trace_.saves) {
      value(save.storage).droppable = trace_.storages[at(save.storage)].recomputable;
    }
    for (size_t s = 0; s < values_.size(); ++s) {
      if (!trace_.storages[s].resident) continue;
      values_[s].born = -1;
      values_[s].dies = INT32_MAX;
    }
    for (int32_t e = 0; at(e) < trace_.events.size(); ++e) {
      const TraceEvent& event = trace_.events[at(e)];
      StorageId s = event.id;
      switch (event.kind) {
        case EventKind::op_begin:
          continue;
        case EventKind::op_end:
          op_end_[at(event.id)] = e;
          for (const StorageId written : problem_.writes(event.id)) {
            value(written).writes.push_back(e);
          }
          continue;
        case EventKind::alloc:
          value(s).born = e;
          value(s).dies = INT32_MAX;
          break;
        case EventKind::free:
          value(s).dies = e;
          break;
        case EventKind::pack:
        case EventKind::unpack:
        case EventKind::drop_save:
          s = trace_.saves[at(event.id)].storage;
          break;
        case EventKind::release:
          break;
      }
      if (value(s).droppable) value(s).events.push_back(e);
    }
  }

  void live(StorageId s) {
    Value& v = value(s);
    v.kept = live_dropped(trace_, v.events, true);
    if (general_) v.freed = live_dropped(trace_, v.events, false);
    const auto& writers = trace_.storages[at(s)].writers;
    v.regular = v.writes.size() == writers.size() && op_end_[at(writers.back())] < v.death();
    for (const auto& triggers : {v.kept.triggers, v.freed.triggers}) {
      for (const auto& trigger : triggers) {
        v.regular = v.regular && at(trigger.version) == writers.size();
      }
    }
  }

  [[nodiscard]] Interval alive_at(const StorageRef& ref) const {
    const Value& v = values_[at(ref.storage)];
    Interval interval{v.born, v.dies};
    const size_t version = at(ref.version);
    if (version > v.writes.size()) return {0, 0};
    if (version > 0) interval.after = std::max(interval.after, v.writes[version - 1]);
    if (version < v.writes.size()) interval.before = std::min(interval.before, v.writes[version]);
    return interval;
  }

  void open_windows() {
    const auto trigger = [&](StorageId s, const StorageLife& life) {
      for (const auto& t : life.triggers) {
        const auto& writers = trace_.storages[at(s)].writers;
        for (int32_t w = 0; w < t.version; ++w) windows_.add(writers[at(w)], t.event);
      }
    };
    for (size_t s = 0; s < values_.size(); ++s) {
      trigger(static_cast<StorageId>(s), values_[s].kept);
      trigger(static_cast<StorageId>(s), values_[s].freed);
    }
    for (OpId op = static_cast<OpId>(trace_.ops.size()) - 1; op >= 0; --op) {
      windows_.close(op);
      if (windows_.slots(op).empty()) continue;
      for (const StorageRef& ref : problem_.reads(op)) {
        const Value& v = value(ref.storage);
        const Interval alive = alive_at(ref);
        // There whatever the plan: in the plain step, and not yet let go.
        const int32_t sure_until = v.droppable ? v.death() : INT32_MAX;
        const auto may_miss = [&](int32_t slot) {
          return !(alive.holds(slot) && slot < sure_until);
        };
        const auto& writers = trace_.storages[at(ref.storage)].writers;
        for (int32_t w = 0; w < ref.version; ++w) windows_.inherit(writers[at(w)], op, may_miss);
      }
    }
    moments_.fill_chains(windows_, trace_.ops.size(), trace_.events.size());
  }

  // One moment for every stretch of events between which no gap begins or ends (its highest), and
  // before each slot one for every op it may replay.
  void place_moments() {
    std::vector<char> border(trace_.events.size() + 1);
    const auto mark = [&](const StorageLife& life) {
      for (const auto& gap : life.gaps) border[at(gap.begin)] = border[at(gap.end)] = 1;
    };
    for (const StorageId s : problem_.candidates()) mark(value(s).kept), mark(value(s).freed);
    moments_.moment.resize(trace_.events.size() + 1);
    int64_t plain = 0;
    for (size_t s = 0; s < values_.size(); ++s) {
      if (trace_.storages[s].resident) plain += trace_.storages[s].rounded_bytes;
    }
    auto& base = lp_.base_bytes;
    base.push_back(plain);
    for (size_t e = 0; e < trace_.events.size(); ++e) {
      base.insert(base.end(), moments_.chain[e].size(), plain);
      const TraceEvent& event = trace_.events[e];
      if (event.kind == EventKind::alloc) plain += bytes(event.id);
      if (event.kind == EventKind::free) plain -= bytes(event.id);
      if (border[e] != 0 || !moments_.chain[e].empty()) base.push_back(plain);
      base.back() = std::max(base.back(), plain);
      moments_.moment[e] = static_cast<int32_t>(base.size()) - 1;
    }
    moments_.moment.back() = static_cast<int32_t>(base.size());
  }

  void add_variables() {
    size_t most = 0;
    for (const Value& v : values_) most = std::max(most, v.freed.triggers.size());
    std::vector<int64_t> replay_cost(trace_.ops.size());
    for (OpId op = 0; at(op) < trace_.ops.size(); ++op) {
      if (windows_.slots(op).empty()) continue;
      const int64_t ns = trace_.ops[at(op)].recompute_ns();
      if (general_) {
        count_[at(op)] = lp_.add_variable(ns, static_cast<int32_t>(most) + 2);
      } else {
        replay_cost[at(op)] = ns;
      }
    }
    windows_.add_variables(lp_, replay_cost);
    for (const StorageId s : problem_.candidates()) {
      if (value(s).kept.gaps.empty() && value(s).freed.gaps.empty()) continue;
      value(s).x = lp_.add_variable(0);
      if (general_) {
        value(s).z = lp_.add_variable(0);
        lp_.add_implication(value(s).z, value(s).x);
      }
      lp_.choices.push_back({s, value(s).x, value(s).z});
    }
  }

  // What an op is replayed from has to be replayed, unless it is there.
  void add_rows(OpId op) {
    const auto slots = windows_.slots(op);
    for (const StorageRef& ref : problem_.reads(op)) {
      const Value& v = value(ref.storage);
      if (v.droppable && !v.regular) continue;
      const Interval alive = alive_at(ref);
      const auto& writers = trace_.storages[at(ref.storage)].writers;
      for (size_t i = 0; i < slots.size(); ++i) {
        const bool never_there = alive.misses(windows_.first(op), slots[i]);
        const bool there_if_kept =
            v.x != kNone && std::max(windows_.first(op) - 1, alive.after) >= v.death();
        if (!never_there && !there_if_kept) continue;
        for (int32_t w = 0; w < ref.version; ++w) {
          const int32_t source = windows_.variable_from(writers[at(w)], slots[i]);
          const int32_t replayed = windows_.variable(op, i);
          if (source == kNone) continue;
          if (never_there) {
            lp_.add_implication(replayed, source);
          } else {
            lp_.add_row({{source, 1}, {replayed, -1}, {v.x, -1}}, -1);
          }
        }
      }
      // A value that no plan can keep is made anew for every replay.
      if (general_ && !v.droppable && alive.misses(windows_.first(op), INT32_MAX)) {
        for (int32_t w = 0; w < ref.version; ++w) {
          if (count_[at(writers[at(w)])] == kNone) continue;
          lp_.add_implication(count_[at(op)], count_[at(writers[at(w)])]);
        }
      }
    }
    if (general_) lp_.add_implication(windows_.last_variable(op), count_[at(op)]);
  }

  // The moments at which an op is replayed: what it allocates, and what it reads that the plain
  // step does not have.
  void add_replays(OpId op) {
    const auto slots = windows_.slots(op);
    std::vector<StorageId> counted;
    for (size_t i = windows_.truncated(op) ? 1 : 0; i < slots.size(); ++i) {
      const int32_t moment = moments_.replay(slots[i], op);
      windows_.add_span(lp_, op, i, moment, moment + 1, problem_.replay(op).peak.rounded);
      counted.clear();
      for (const StorageRef& ref : problem_.reads(op)) {
        const Value& v = value(ref.storage);
        if (alive_at(ref).holds(slots[i]) || (v.droppable && !v.regular)) continue;
        if (std::find(counted.begin(), counted.end(), ref.storage) != counted.end()) continue;
        counted.push_back(ref.storage);
        windows_.add_span(lp_, op, i, moment, moment + 1, bytes(ref.storage));
      }
    }
  }

  void add_candidate(StorageId s) {
    Value& v = value(s);
    if (v.x == kNone) return;
    const auto& writers = trace_.storages[at(s)].writers;
    for (const auto& gap : v.kept.gaps) lp_.add_span(v.x, begin_of(gap), end_of(s, gap), -bytes(s));
    if (general_) add_freed_gaps(s);
    if (!v.regular || v.kept.triggers.empty()) return;
    const int32_t trigger = v.kept.triggers.front().event;
    for (const OpId writer : writers) {
      if (windows_.slots(writer).empty()) continue;
      lp_.add_implication(v.x, windows_.variable_from(writer, trigger));
      if (!general_ || v.freed.triggers.empty()) continue;
      // Freed after each use, it is rebuilt by every trigger, and by what needs it before them.
      const auto times = static_cast<int32_t>(v.freed.triggers.size());
      lp_.add_row({{count_[at(writer)], 1}, {v.z, -times}}, 0);
      const int32_t early = windows_.variable_before(writer, v.freed.triggers.front().event);
      if (early == kNone) continue;
      lp_.add_row({{count_[at(writer)], 1}, {v.z, -times - 1}, {early, -1}}, -1);
    }
    add_early_replays(s, trigger);
  }

  [[nodiscard]] int32_t begin_of(const StorageLife::Gap& gap) const {
    return moments_.of(gap.begin);
  }
  [[nodiscard]] int32_t end_of(StorageId s, const StorageLife::Gap& gap) const {
    if (!gap.rebuilt) return moments_.of(gap.end);
    return moments_.after_replay(gap.end, trace_.storages[at(s)].writers.back());
  }

  // Away with the keep bit off, though it would be there with it on.
  void add_freed_gaps(StorageId s) {
    const Value& v = value(s);
    for (const auto& gap : v.freed.gaps) {
      int32_t begin = begin_of(gap);
      const int32_t end = end_of(s, gap);
      for (const auto& other : v.kept.gaps) {
        if (end_of(s, other) <= begin || begin_of(other) >= end) continue;
        lp_.add_span(v.z, begin, begin_of(other), -bytes(s));
        begin = std::max(begin, end_of(s, other));
      }
      lp_.add_span(v.z, begin, end, -bytes(s));
    }
  }

  // Rebuilt for something else before its own first unpack, a value stays for its saves.
  void add_early_replays(StorageId s, int32_t trigger) {
    const Value& v = value(s);
    const OpId writer = trace_.storages[at(s)].writers.back();
    if (windows_.first(writer) <= v.death()) return;
    const Interval alive = alive_at({s, static_cast<int32_t>(v.writes.size())});
    // An op that writes nothing else is replayed only where this value is dropped.
    const bool doubt = problem_.writes(writer).size() != 1 || windows_.first(writer) <= alive.after;
    const int32_t gap_end = end_of(s, v.kept.gaps.front());
    const auto slots = windows_.slots(writer);
    for (size_t i = 0; i < slots.size() && slots[i] < trigger; ++i) {
      if (slots[i] <= v.kept.saved_since) continue;
      const int32_t begin = moments_.after_replay(slots[i], writer);
      const int32_t end = i + 1 < slots.size()
                              ? std::min(gap_end, moments_.after_replay(slots[i + 1], writer))
                              : gap_end;
      const int32_t there = lp_.add_staying(windows_.variable(writer, i), doubt ? v.x : kNone, v.z);
      lp_.add_span(there, begin, end, bytes(s));
    }
  }

  const Problem& problem_;
  const Trace& trace_;
  const bool general_;
  Relaxation lp_;
  std::vector<Value> values_;
  std::vector<int32_t> op_end_;  // event
  std::vector<int32_t> count_;   // n, by op
  ReplayWindows windows_;
  ReplayMoments moments_;  // of each event, and one past the last
};

}  // namespace

Relaxation relax_eager(const Problem& problem, Space space, size_t width) {
  return EagerRelaxation(problem, space, width).build();
}

}  // namespace lowtide::planner
