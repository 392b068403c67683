#include "runtime/variant.h"

#include <utility>

#include "core/error.h"
#include "planner/simulator.h"

namespace lowtide::runtime {

planner::PlannerOptions planner_options(const hooks::TrainingMemory& memory, int64_t reserve_bytes,
                                        const std::string& strategy) {
  planner::PlannerOptions options;
  if (!strategy.empty()) options.strategies = {"keep_all", strategy};
  options.reserve_bytes = reserve_bytes;
  // Reserved bytes come from an allocator of the run's own rules, over a counting backend.
  options.reserved_replay = [&memory](const std::vector<planner::SimulatedMemoryEvent>& events) {
    std::vector<hooks::ReplayEvent> sequence;
    sequence.reserve(events.size());
    for (const planner::SimulatedMemoryEvent& event : events) {
      if (event.bytes != 0) {
        sequence.push_back({event.block, event.bytes});
      }
    }
    std::vector<planner::ReservedPeak> ways;
    for (const hooks::ReplayHold& hold : memory.replay_holds(sequence)) {
      ways.push_back({hold.reserved_bytes, hold.exchanges});
    }
    return ways;
  };
  return options;
}

Variant::Variant(Trace trace, const hooks::TrainingMemory& memory, std::string strategy)
    : trace_(std::make_unique<Trace>(std::move(trace))),
      memory_(memory),
      strategy_(std::move(strategy)),
      fingerprint_(trace_->fingerprint()) {}

const planner::Frontier& Variant::frontier() {
  if (!frontier_.has_value()) {
    frontier_ = planner::build_frontier(*trace_, planner_options(memory_, 0, strategy_));
  }
  return *frontier_;
}

void Variant::make_plan(int64_t budget_bytes, int64_t reserve_bytes) {
  planner::PlannerOptions options = planner_options(memory_, reserve_bytes, strategy_);
  const planner::Frontier* all = frontier_.has_value() ? &*frontier_ : nullptr;
  if (all == nullptr) {
    // An ample budget needs no search.
    planner::PlannerOptions plain = options;
    plain.strategies = {"keep_all"};
    const planner::Frontier keep_all = planner::build_frontier(*trace_, plain);
    // Only where it is held at no price: below that, dropping what is cheap may be quicker.
    if (keep_all.select(budget_bytes, trace_->outside_bytes + reserve_bytes) ==
        &keep_all.points().front()) {
      plan_ = planner::make_plan(*trace_, keep_all, budget_bytes, plain);
    } else {
      all = &frontier();
    }
  }
  if (all != nullptr) {
    plan_ = planner::make_plan(*trace_, *all, budget_bytes, options);
  }
  index_ = std::make_shared<const PlanIndex>(*trace_, plan_->decisions);
}

void Variant::use_plan(Plan plan) {
  if (plan.trace_fingerprint != fingerprint_) {
    throw Mismatch("the plan was made for trace " + fingerprint_text(plan.trace_fingerprint) +
                   ", this trace is " + fingerprint_text(fingerprint_) +
                   ". Fix: plan again from this trace");
  }
  plan_ = std::move(plan);
  index_ = std::make_shared<const PlanIndex>(*trace_, plan_->decisions);
}

void Variant::forbid(int32_t ordinal, int32_t output, const std::string& reason) {
  const PlanIndex all(*trace_, {});
  const OpId op = all.op(static_cast<size_t>(ordinal)).trace_op;
  const StorageId storage =
      trace_->ops[static_cast<size_t>(op)].outputs.at(static_cast<size_t>(output));
  TraceStorage& forbidden = trace_->storages[static_cast<size_t>(storage)];
  forbidden.recomputable = false;
  forbidden.keep_reason = reason;
  // What is computed from a value that cannot be reproduced cannot be reproduced either, unless
  // that value is still there; the trace cannot promise this, so its readers are kept too.
  std::vector<char> tainted(trace_->storages.size(), 0);
  tainted[static_cast<size_t>(storage)] = 1;
  for (const TraceOp& reader : trace_->ops) {
    bool reads = false;
    for (const StorageRef& ref : reader.inputs) {
      reads |= tainted[static_cast<size_t>(ref.storage)] != 0;
    }
    if (!reads || reader.phase != Phase::forward) {
      continue;
    }
    for (const StorageId made : reader.outputs) {
      tainted[static_cast<size_t>(made)] = 1;
      if (trace_->storages[static_cast<size_t>(made)].recomputable) {
        trace_->storages[static_cast<size_t>(made)].recomputable = false;
        trace_->storages[static_cast<size_t>(made)].keep_reason =
            "computed from a tensor that cannot be reproduced";
      }
    }
  }
  forget_plans();
}

Prices Variant::prices() const {
  Prices prices{.replay_ns = {}, .exchange_ns = trace_->exchange_ns};
  for (const TraceOp& op : trace_->ops) {
    prices.replay_ns.push_back(op.replay_ns);
  }
  return prices;
}

void Variant::set_prices(const Prices& prices) {
  for (size_t i = 0; i < trace_->ops.size(); ++i) {
    trace_->ops[i].replay_ns = prices.replay_ns[i];
  }
  trace_->exchange_ns = prices.exchange_ns;
  forget_plans();
}

void Variant::forget_plans() {
  frontier_.reset();
  plan_.reset();
  index_.reset();
  point_index_.clear();
}

void Variant::prepare_scaling() {
  if (!point_index_.empty()) {
    return;
  }
  const planner::Frontier& all = frontier();
  for (size_t i = 0; i < all.points().size(); ++i) {
    point_index_[i] = std::make_shared<const PlanIndex>(*trace_, all.points()[i].decisions);
  }
}

std::shared_ptr<const PlanIndex> Variant::scaled(double ratio, int64_t budget_bytes) const {
  if (!frontier_.has_value() || point_index_.empty()) {
    return nullptr;
  }
  const int64_t resident = resident_bytes();
  const std::vector<planner::FrontierPoint>& points = frontier_->points();
  for (size_t i = 0; i < points.size(); ++i) {
    const double step_bytes =
        static_cast<double>(points[i].predicted.peak_reserved_bytes - resident) * ratio;
    if (static_cast<double>(resident) + step_bytes <= static_cast<double>(budget_bytes)) {
      return point_index_.at(i);
    }
  }
  return point_index_.at(points.size() - 1);
}

std::vector<uint64_t> Variant::droppable() const {
  std::vector<char> saved(trace_->storages.size(), 0);
  for (const TraceSave& save : trace_->saves) {
    saved[static_cast<size_t>(save.storage)] = 1;
  }
  std::vector<Decision> all;
  for (size_t i = 0; i < trace_->storages.size(); ++i) {
    if (trace_->storages[i].recomputable && saved[i] != 0) {
      all.push_back({static_cast<StorageId>(i), Action::drop, true});
    }
  }
  const PlanIndex index(*trace_, all);
  std::vector<uint64_t> result;
  for (const auto& [ordinal, planned] : index.drops()) {
    result.push_back(planned.recipe);
  }
  return result;
}

int64_t Variant::resident_bytes() const {
  int64_t bytes = 0;
  for (const TraceStorage& storage : trace_->storages) {
    bytes += storage.resident ? storage.rounded_bytes : 0;
  }
  return bytes;
}

int64_t Variant::smallest_peak_bytes() { return frontier().smallest_peak_bytes(); }

}  // namespace lowtide::runtime
