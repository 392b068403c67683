// Strategies side by side on one trace: each with a frontier of its own, judged at the same
// budgets.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/trace.h"
#include "planner/planner.h"

namespace lowtide::cli {

struct StrategyResult {
  std::string name;
  std::string refusal;  // why there is no frontier; else empty
  std::optional<planner::Frontier> frontier;
  double planning_seconds = 0;  // CPU time
};

struct Comparison {
  std::vector<StrategyResult> strategies;
  std::vector<int64_t> budgets;  // falling
  // [budget][strategy]: empty where the strategy has no plan within the budget.
  std::vector<std::vector<std::optional<Plan>>> plans;
};

// Budgets spread evenly from the plain step's peak to the lowest that any strategy reaches, fixed
// bytes (outside, reserve) included. Strategies and reserve are those of the options; the single
// strategy "all" stands for every one there is, and those that this trace is not for are noted.
// Throws InvalidInput as build_frontier does.
[[nodiscard]] Comparison compare(const Trace& trace, const planner::PlannerOptions& options,
                                 int budgets);

// A table; speed is in samples where `batch` is given (> 0), else in steps.
void print_comparison(std::ostream& out, const Trace& trace, const Comparison& comparison,
                      int64_t batch);
[[nodiscard]] std::string comparison_json(const Trace& trace, const Comparison& comparison,
                                          int64_t batch);

}  // namespace lowtide::cli
