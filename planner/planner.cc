#include "planner/planner.h"

#include "core/bytes.h"
#include "core/error.h"
#include "planner/checker.h"
#include "planner/simulator.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

std::string with_unit(int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + format_bytes(bytes) + ")";
}

// Splits the predicted reserved peak into its parts; they add up to it.
BudgetAccount account_of(const Trace& trace, const FrontierPoint& point, int64_t reserve_bytes) {
  const Predicted& predicted = point.predicted;
  const Simulator simulator(trace);
  const SimulationResult at_peak =
      simulator.simulate(DecisionTable(trace, point.decisions), {.record_live_set = true});
  BudgetAccount account;
  for (const StorageId s : at_peak.live_at_peak) {
    const TraceStorage& storage = trace.storages[static_cast<size_t>(s)];
    if (storage.resident) {
      account.resident_bytes += storage.bytes;
    } else {
      account.activation_bytes += storage.bytes;
      if (storage.kind == StorageKind::gradient) account.gradient_bytes += storage.bytes;
    }
  }
  account.rounding_bytes = predicted.peak_rounded_bytes - predicted.peak_requested_bytes;
  account.placement_bytes = predicted.peak_reserved_bytes - predicted.peak_rounded_bytes;
  account.outside_bytes = trace.outside_bytes;
  account.reserve_bytes = reserve_bytes;
  return account;
}

}  // namespace

Plan make_plan(const Trace& trace, const Frontier& frontier, int64_t budget_bytes,
               const PlannerOptions& options) {
  if (budget_bytes < 0 || options.reserve_bytes < 0) {
    throw InvalidInput("budget and reserve must not be negative");
  }
  const int64_t fixed_bytes = trace.outside_bytes + options.reserve_bytes;
  const FrontierPoint* point = frontier.select(budget_bytes, fixed_bytes);
  if (point == nullptr) {
    const int64_t smallest = frontier.smallest_peak_bytes() + fixed_bytes;
    throw OutOfBudget("budget " + with_unit(budget_bytes) +
                          " cannot be met: smallest reachable budget is " + with_unit(smallest) +
                          " = peak " + std::to_string(frontier.smallest_peak_bytes()) +
                          " + outside " + std::to_string(trace.outside_bytes) + " + reserve " +
                          std::to_string(options.reserve_bytes) +
                          "; raise the budget to at least that, or make the batch smaller",
                      budget_bytes, smallest);
  }
  Plan plan;
  plan.trace_fingerprint = trace.fingerprint();
  plan.strategy = point->strategy;
  plan.budget_bytes = budget_bytes;
  plan.account = account_of(trace, *point, options.reserve_bytes);
  plan.decisions = point->decisions;
  plan.predicted = point->predicted;
  if (options.bound_work > 0) {
    plan.bound = BoundFinder(trace).judge(plan, budget_bytes - fixed_bytes, options.bound_work);
  }
  const CheckResult check = check_plan(trace, plan);
  LOWTIDE_CHECK(
      check.verdict == Verdict::ok,
      "the plan failed its check (" + std::string(to_string(check.verdict)) + "): " + check.detail);
  return plan;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

}  // namespace lowtide::planner
