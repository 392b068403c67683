#include "planner/simulator.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "planner/joint_walk.h"
#include "planner/live_set.h"
#include "planner/problem.h"

namespace lowtide::planner {

DecisionTable::DecisionTable(const Trace& trace, const std::vector<Decision>& decisions)
    : DecisionTable(trace.storages.size()) {
  for (const Decision& decision : decisions) {
    if (decision.storage < 0 || at(decision.storage) >= action.size()) {
      throw InvalidInput("decision about storage " + std::to_string(decision.storage) +
                         ", but the trace has " + std::to_string(action.size()) + " storages");
    }
    action[at(decision.storage)] = decision.action;
    keep[at(decision.storage)] = decision.keep_after_recompute ? 1 : 0;
  }
}

std::vector<Decision> DecisionTable::to_decisions() const {
  std::vector<Decision> decisions;
  for (size_t s = 0; s < action.size(); ++s) {
    if (action[s] == Action::save) continue;
    decisions.push_back({static_cast<StorageId>(s), action[s], keep[s] != 0});
  }
  return decisions;
}

struct Simulator::Scratch {
  // A storage as the step goes by.
  struct State {
    int32_t content = 0;    // writers that have run
    int32_t saves = 0;      // packed and not dropped
    int32_t block = kNone;  // of its bytes, where memory events are recorded
    bool present = false;
    bool used = false;     // owned by something else than saves
    bool rebuilt = false;  // replayed before: saves may keep it
  };
  // A storage inside one replay; valid where `epoch` is the replay's.
  struct Need {
    uint32_t epoch = 0;
    int32_t version = 0;  // highest state needed
    int32_t written = 0;  // writers run so far
    OpId last_use = kNone;
    int32_t block = kNone;
    bool buffer = false;  // holds bytes now
  };

  explicit Scratch(const Problem& problem)
      : initial(problem.trace().storages.size()),
        needs(problem.trace().storages.size()),
        op_epoch(problem.trace().ops.size()) {
    for (size_t s = 0; s < initial.size(); ++s) {
      initial[s].present = problem.trace().storages[s].resident;
      initial[s].used = true;
    }
    states = initial;
  }

  std::vector<State> initial;
  std::vector<State> states;
  std::vector<Need> needs;
  std::vector<uint32_t> op_epoch;
  uint32_t epoch = 0;
  std::vector<OpId> ops;
  std::vector<StorageId> adopted;
};

namespace {

// One walk over the step. Recording visits every event; else folded runs are taken at once.
template <bool kRecord, class Scratch>
class Walk {
 public:
  Walk(const Problem& problem, const DecisionTable& decisions, int64_t level, Scratch& scratch,
       SimulationResult& result)
      : problem_(problem),
        decisions_(decisions),
        level_(level),
        scratch_(scratch),
        result_(result) {}

  void run() {
    std::copy(scratch_.initial.begin(), scratch_.initial.end(), scratch_.states.begin());
    live_ = problem_.resident();
    result_.peak_requested_bytes = live_.requested;
    result_.peak_rounded_bytes = live_.rounded;
    if constexpr (kRecord) record_residents();
    const auto& steps = kRecord ? problem_.unfolded_steps() : problem_.steps();
    for (const SimStep& step : steps) {
      event_ = step.event;
      visit(step);
    }
  }

  // Storage behind each recorded alloc, in block order.
  [[nodiscard]] const std::vector<StorageId>& block_storage() const { return block_storage_; }
  [[nodiscard]] size_t peak_record() const { return peak_record_; }

 private:
  using State = typename Scratch::State;
  using Need = typename Scratch::Need;

  State& state(StorageId s) { return scratch_.states[at(s)]; }
  [[nodiscard]] bool dropped(StorageId s) const { return decisions_.action[at(s)] != Action::save; }
  [[nodiscard]] bool kept_by_saves(StorageId s, const State& st) const {
    return decisions_.keep[at(s)] != 0 && st.saves > 0;
  }

  void visit(const SimStep& step) {
    switch (step.kind) {
      case SimStep::Kind::alloc: {
        State& st = state(step.id);
        allocate(step.id, st.block);
        st.present = true;
        break;
      }
      case SimStep::Kind::free:
        die(step.id);
        break;
      case SimStep::Kind::block: {
        const Block& block = problem_.block(step.id);
        rise(block.peak, block.peak_event);
        live_ += block.delta;
        break;
      }
      case SimStep::Kind::op_end:
        for (const StorageId s : problem_.writes(step.id)) ++state(s).content;
        break;
      case SimStep::Kind::pack:
        ++state(save_storage(step.id)).saves;
        break;
      case SimStep::Kind::unpack: {
        const TraceSave& save = problem_.trace().saves[at(step.id)];
        State& st = state(save.storage);
        if (!st.present && dropped(save.storage)) replay(save.storage, save.version);
        st.used = true;
        break;
      }
      case SimStep::Kind::drop_save: {
        const StorageId s = save_storage(step.id);
        --state(s).saves;
        if (dropped(s)) die_if_unowned(s);
        break;
      }
      case SimStep::Kind::release:
        state(step.id).used = false;
        if (dropped(step.id)) die_if_unowned(step.id);
        break;
    }
  }

  [[nodiscard]] StorageId save_storage(SaveId save) const {
    return problem_.trace().saves[at(save)].storage;
  }

  void die_if_unowned(StorageId s) {
    const State& st = state(s);
    if (!st.used && !(st.rebuilt && kept_by_saves(s, st))) die(s);
  }

  void die(StorageId s) {
    State& st = state(s);
    if (!st.present) return;
    st.present = false;
    release(s, st.block);
  }

  // Collects the missing writers, then runs them in completion order.
  void replay(StorageId target, int32_t version) {
    ++scratch_.epoch;
    scratch_.ops.clear();
    scratch_.adopted.clear();
    need(target, version);
    for (size_t i = 0; i < scratch_.ops.size(); ++i) {
      for (const StorageRef& ref : problem_.reads(scratch_.ops[i])) {
        if (!live_at(ref)) need(ref.storage, ref.version);
      }
    }
    std::sort(scratch_.ops.begin(), scratch_.ops.end());
    // A replay lets go of a buffer after the last op that reads the storage, at whatever version.
    for (const OpId op : scratch_.ops) {
      for (const StorageRef& ref : problem_.reads(op)) need(ref.storage, 0).last_use = op;
    }
    for (const OpId op : scratch_.ops) run_op(op, target);

    for (const StorageId s : scratch_.adopted) adopt(s);
    if (scratch_.needs[at(target)].buffer) adopt(target);
    result_.replayed_ops += static_cast<int64_t>(scratch_.ops.size());
  }

  bool live_at(const StorageRef& ref) {
    const State& st = state(ref.storage);
    return st.present && st.content == ref.version;
  }

  Need& need(StorageId s, int32_t version) {
    Need& n = scratch_.needs[at(s)];
    if (n.epoch != scratch_.epoch) n = {.epoch = scratch_.epoch};
    const auto& writers = problem_.trace().storages[at(s)].writers;
    for (; n.version < version; ++n.version) {
      const OpId op = writers[at(n.version)];
      if (scratch_.op_epoch[at(op)] == scratch_.epoch) continue;
      scratch_.op_epoch[at(op)] = scratch_.epoch;
      scratch_.ops.push_back(op);
    }
    return n;
  }

  void run_op(OpId op, StorageId target) {
    result_.recompute_ns += problem_.trace().ops[at(op)].recompute_ns();
    if constexpr (kRecord) {
      run_slice(op);
    } else {
      const ReplayOp& effect = problem_.replay(op);
      rise(effect.peak, event_);
      live_ += effect.outputs;
    }
    for (const StorageId s : problem_.outputs(op)) {
      Need& n = scratch_.needs[at(s)];
      // An output that this replay does not read: its last use is its creation.
      if (n.epoch != scratch_.epoch) {
        n = {.epoch = scratch_.epoch, .last_use = op, .block = n.block};
      }
      n.buffer = true;
    }
    for (const StorageId s : problem_.writes(op)) ++scratch_.needs[at(s)].written;
    for (const StorageId s : problem_.outputs(op)) settle(s, op, target);
    for (const StorageRef& ref : problem_.reads(op)) settle(ref.storage, op, target);
  }

  // After its last use in this replay a buffer becomes the storage's value, or is freed.
  void settle(StorageId s, OpId op, StorageId target) {
    Need& n = scratch_.needs[at(s)];
    if (n.epoch != scratch_.epoch || !n.buffer || n.last_use != op || s == target) return;
    const State& st = state(s);
    if (dropped(s) && !st.present && n.written == st.content && kept_by_saves(s, st)) {
      scratch_.adopted.push_back(s);
      n.last_use = kNone;
    } else {
      n.buffer = false;
      release(s, n.block);
    }
  }

  void adopt(StorageId s) {
    State& st = state(s);
    st.present = true;
    st.rebuilt = true;
    st.block = scratch_.needs[at(s)].block;
  }

  // `peak` is above the bytes live now.
  void rise(const Amount& peak, int32_t event) {
    const Amount top = live_ + peak;
    if (top.requested > result_.peak_requested_bytes) {
      result_.peak_requested_bytes = top.requested;
      result_.peak_event = event;
      if constexpr (kRecord) peak_record_ = result_.memory_events.size();
    }
    if (top.rounded > result_.peak_rounded_bytes) result_.peak_rounded_bytes = top.rounded;
    if (top.rounded > level_) add_saturated(result_.excess_bytes, top.rounded - level_);
  }

  void allocate(StorageId s, int32_t& block) {
    const Amount size = problem_.size(s);
    if constexpr (kRecord) record_alloc(s, block);
    rise(size, event_);
    live_ += size;
  }

  void release(StorageId s, int32_t block) {
    const Amount size = problem_.size(s);
    live_ -= size;
    if constexpr (kRecord) {
      if (event_bytes(s) > 0) result_.memory_events.push_back({block, -event_bytes(s)});
    }
  }

  // What the step found already placed counts as placed: its rounding is a fact, not a prediction.
  int64_t event_bytes(StorageId s) const {
    return problem_.trace().storages[at(s)].resident ? problem_.size(s).rounded
                                                     : problem_.size(s).requested;
  }

  void record_alloc(StorageId s, int32_t& block) {
    block = static_cast<int32_t>(block_storage_.size());
    block_storage_.push_back(s);
    if (event_bytes(s) > 0) result_.memory_events.push_back({block, event_bytes(s)});
  }

  void record_residents() {
    const auto& storages = problem_.trace().storages;
    for (size_t s = 0; s < storages.size(); ++s) {
      if (!storages[s].resident) continue;
      record_alloc(static_cast<StorageId>(s), scratch_.states[s].block);
    }
    peak_record_ = result_.memory_events.size();
  }

  void run_slice(OpId op) {
    for (const int32_t item : problem_.slice(op)) {
      if (item >= 0) {
        allocate(item, scratch_.needs[at(item)].block);
      } else {
        release(~item, scratch_.needs[at(~item)].block);
      }
    }
  }

  const Problem& problem_;
  const DecisionTable& decisions_;
  const int64_t level_;
  Scratch& scratch_;
  SimulationResult& result_;
  Amount live_;
  int32_t event_ = kNone;
  std::vector<StorageId> block_storage_;
  size_t peak_record_ = 0;  // memory events up to and with the one that reached the peak
};

}  // namespace

Simulator::Simulator(const Trace& trace)
    : trace_(trace),
      problem_(std::make_unique<Problem>(trace)),
      scratch_(std::make_unique<Scratch>(*problem_)) {
  if (trace.execution != Execution::joint) return;
  joint_graph_ = std::make_unique<JointGraph>(trace);
  joint_walk_ = std::make_unique<JointWalk>(*joint_graph_);
}

Simulator::~Simulator() = default;

SimulationResult Simulator::simulate(const DecisionTable& decisions,
                                     SimulationOptions options) const {
  LOWTIDE_CHECK(decisions.action.size() == trace_.storages.size(),
                "the decision table belongs to another trace");
  SimulationResult result;
  if (joint_walk_ != nullptr) {
    joint_walk_->run(decisions, options, result);
    work_ += static_cast<int64_t>(trace_.ops.size()) + result.replayed_ops;
    return result;
  }
  const int64_t level = options.level_bytes >= 0 ? options.level_bytes : INT64_MAX;
  if (options.record_memory_events || options.record_live_set) {
    Walk<true, Scratch> walk(*problem_, decisions, level, *scratch_, result);
    walk.run();
    if (options.record_live_set) {
      result.live_at_peak =
          live_set(result.memory_events, walk.peak_record(), walk.block_storage(), trace_);
    }
    if (!options.record_memory_events) result.memory_events.clear();
  } else {
    Walk<false, Scratch> walk(*problem_, decisions, level, *scratch_, result);
    walk.run();
  }
  work_ += static_cast<int64_t>(problem_->steps().size()) + 4 * result.replayed_ops;
  return result;
}

}  // namespace lowtide::planner
