#include "cli/comparison.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/text_table.h"
#include "core/bytes.h"
#include "core/error.h"

namespace lowtide::cli {
namespace {

using Json = nlohmann::ordered_json;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::string decimal(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

double per_second(int64_t step_ns, int64_t batch) {
  if (step_ns <= 0) return 0;
  return static_cast<double>(std::max<int64_t>(batch, 1)) * 1e9 / static_cast<double>(step_ns);
}

bool is_all(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{"all"};
}

std::vector<std::string> every_strategy() {
  std::vector<std::string> names = planner::strategy_names();
  const auto knapsack = std::find(names.begin(), names.end(), "knapsack");
  if (knapsack != names.end()) names.insert(knapsack + 1, "knapsack:flops");
  return names;
}

StrategyResult run(const Trace& trace, const std::string& name,
                   const planner::PlannerOptions& options) {
  StrategyResult result;
  result.name = name;
  planner::PlannerOptions alone = options;
  // Any of them may leave the plain step as it is.
  alone.strategies = {"keep_all"};
  if (name != "keep_all") alone.strategies.push_back(name);
  const double start = cpu_seconds();
  try {
    result.frontier = planner::build_frontier(trace, alone);
  } catch (const InvalidInput& error) {
    if (!is_all(options.strategies)) throw;
    result.refusal = error.message();
  }
  result.planning_seconds = cpu_seconds() - start;
  return result;
}

}  // namespace

Comparison compare(const Trace& trace, const planner::PlannerOptions& options, int budgets) {
  Comparison result;
  int64_t top = 0;
  int64_t bottom = INT64_MAX;
  for (const std::string& name :
       is_all(options.strategies) ? every_strategy() : options.strategies) {
    result.strategies.push_back(run(trace, name, options));
    const auto& frontier = result.strategies.back().frontier;
    if (!frontier) continue;
    top = std::max(top, frontier->points().front().predicted.peak_reserved_bytes);
    bottom = std::min(bottom, frontier->smallest_peak_bytes());
  }
  if (bottom > top) return result;  // all refused
  const int64_t fixed = trace.outside_bytes + options.reserve_bytes;
  planner::BoundFinder bounds(trace);  // one for all: the bound of a budget is that of every plan
  planner::PlannerOptions unbounded = options;
  unbounded.bound_work = 0;
  for (int i = 0; i < budgets; ++i) {
    const int64_t step = budgets == 1 ? 0 : (top - bottom) / (budgets - 1) * i;
    const int64_t budget = (i > 0 && i + 1 == budgets ? bottom : top - step) + fixed;
    result.budgets.push_back(budget);
    auto& row = result.plans.emplace_back();
    for (const StrategyResult& strategy : result.strategies) {
      row.emplace_back();
      if (!strategy.frontier || strategy.frontier->smallest_peak_bytes() + fixed > budget) continue;
      Plan plan = planner::make_plan(trace, *strategy.frontier, budget, unbounded);
      if (options.bound_work > 0) {
        plan.bound = bounds.judge(plan, budget - fixed, options.bound_work);
      }
      row.back() = std::move(plan);
    }
  }
  return result;
}

void print_comparison(std::ostream& out, const Trace& trace, const Comparison& comparison,
                      int64_t batch) {
  out << printable(trace.settings.name) << ": step " << format_duration(trace.step_ns)
      << " with everything kept. Predicted; a strategy without a row has no plan for the "
         "budget.\n\n";
  TextTable table({"budget", "peak", "step", "extra time", batch > 0 ? "samples/s" : "steps/s",
                   "gap to bound", "strategy"},
                  true);
  for (size_t b = 0; b < comparison.budgets.size(); ++b) {
    const auto& row = comparison.plans[b];
    std::vector<size_t> order(row.size());
    for (size_t s = 0; s < order.size(); ++s) order[s] = s;
    const auto time = [&](size_t s) { return row[s] ? row[s]->predicted.step_ns : INT64_MAX; };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return time(x) < time(y); });
    bool first = true;
    for (const size_t s : order) {
      const StrategyResult& strategy = comparison.strategies[s];
      if (!row[s]) continue;
      const std::string budget = first ? format_bytes(comparison.budgets[b]) : "";
      first = false;
      const Predicted& p = row[s]->predicted;
      const Bound& bound = row[s]->bound;
      table.add({budget, format_bytes(p.peak_reserved_bytes), format_duration(p.step_ns),
                 percent(p.recompute_ns, trace.step_ns),
                 decimal(per_second(p.step_ns, batch), "%.4g"),
                 bound.gap < 0 ? "-" : decimal(100 * bound.gap, "%.1f %%"), strategy.name});
    }
  }
  table.print(out);
  out << '\n';
  TextTable summary({"strategy", "lowest peak", "plans", "planning CPU"});
  for (const StrategyResult& s : comparison.strategies) {
    if (!s.frontier) continue;
    summary.add({s.name, format_bytes(s.frontier->smallest_peak_bytes()),
                 std::to_string(s.frontier->points().size()),
                 decimal(s.planning_seconds, "%.2f s")});
  }
  summary.print(out);
  for (const StrategyResult& s : comparison.strategies) {
    if (!s.refusal.empty()) out << "  " << s.name << ": " << s.refusal << '\n';
  }
}

std::string comparison_json(const Trace& trace, const Comparison& comparison, int64_t batch) {
  Json json = {{"trace_fingerprint", fingerprint_text(trace.fingerprint())},
               {"step_ns", trace.step_ns},
               {"strategies", Json::array()},
               {"budgets", Json::array()}};
  for (const StrategyResult& s : comparison.strategies) {
    Json entry = {{"name", s.name}, {"planning_seconds", s.planning_seconds}};
    if (s.frontier) {
      entry["smallest_peak_bytes"] = s.frontier->smallest_peak_bytes();
      entry["plans"] = s.frontier->points().size();
    } else {
      entry["refusal"] = s.refusal;
    }
    json["strategies"].push_back(std::move(entry));
  }
  for (size_t b = 0; b < comparison.budgets.size(); ++b) {
    Json plans = Json::array();
    for (size_t s = 0; s < comparison.strategies.size(); ++s) {
      const auto& plan = comparison.plans[b][s];
      if (!plan) continue;
      const Predicted& p = plan->predicted;
      plans.push_back(
          {{"strategy", comparison.strategies[s].name},
           {"peak_reserved_bytes", p.peak_reserved_bytes},
           {"step_ns", p.step_ns},
           {"recompute_ns", p.recompute_ns},
           {batch > 0 ? "samples_per_second" : "steps_per_second", per_second(p.step_ns, batch)},
           {"gap", plan->bound.gap < 0 ? Json(nullptr) : Json(plan->bound.gap)}});
    }
    json["budgets"].push_back(
        {{"budget_bytes", comparison.budgets[b]}, {"plans", std::move(plans)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lowtide::cli
