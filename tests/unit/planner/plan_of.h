// A plan that says what the simulator says, for the checker to judge. Its budget is its peak.
#pragma once

#include "core/plan.h"
#include "planner/simulator.h"

namespace lowtide::planner {

inline Plan plan_of(const Trace& trace, const DecisionTable& table,
                    const SimulationResult& result) {
  Plan plan;
  plan.trace_fingerprint = trace.fingerprint();
  plan.decisions = table.to_decisions();
  plan.predicted.peak_requested_bytes = result.peak_requested_bytes;
  plan.predicted.peak_rounded_bytes = result.peak_rounded_bytes;
  plan.predicted.peak_reserved_bytes = result.peak_rounded_bytes;
  plan.predicted.recompute_ns = result.recompute_ns;
  plan.predicted.step_ns = trace.step_ns + result.recompute_ns;
  plan.budget_bytes = result.peak_rounded_bytes;
  return plan;
}

}  // namespace lowtide::planner
