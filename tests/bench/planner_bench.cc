// The planner as scripts/bench_planner.py and scripts/prove_optima.py see it: one JSON text per
// call, CPU seconds of this process alone. Judges nothing.
//
//   planner_bench frontier FILE STRATEGY [BUDGET...]  whole frontier; least time at each budget
//   planner_bench random FILE STRATEGY COUNT          plans at random budgets against the promises
//   planner_bench bound FILE SPACE BUDGET...          lower bounds
//   planner_bench model FILE SPACE [WIDTH]            the relaxation behind them
//   planner_bench simulate FILE [STORAGE[:freed]...]  peak and time with these dropped
//   planner_bench gpt LAYERS FILE                     writes the trace of a synthetic GPT
// FILE: a trace or an instance. STRATEGY: names as in `lowtide frontier`, separated by commas.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/trace_file.h"
#include "planner/bound.h"
#include "planner/checker.h"
#include "planner/instance.h"
#include "planner/planner.h"
#include "planner/relaxation.h"
#include "planner/simulator.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

PlannerOptions options_of(const std::string& strategies) {
  PlannerOptions options;
  options.bound_work = 0;
  options.strategies.clear();
  for (size_t begin = 0; begin <= strategies.size();) {
    const size_t end = std::min(strategies.find(',', begin), strategies.size());
    options.strategies.push_back(strategies.substr(begin, end - begin));
    begin = end + 1;
  }
  return options;
}

Space space_of(const std::string& name) {
  if (name == "single") return Space::single;
  if (name == "general") return Space::general;
  throw InvalidInput("the space \"" + name + "\" is unknown; use single or general");
}

Json frontier(const Arguments& arguments) {
  const Trace trace = read_problem(arguments.at(0));
  const PlannerOptions options = options_of(arguments.at(1));
  const double start = cpu_seconds();
  const Frontier all = build_frontier(trace, options);
  Json json = {{"cpu_seconds", cpu_seconds() - start},
               {"ops", trace.ops.size()},
               {"saves", trace.saves.size()},
               {"points", all.points().size()},
               {"smallest_peak_bytes", all.smallest_peak_bytes()},
               {"budgets", Json::array()}};
  for (size_t i = 2; i < arguments.size(); ++i) {
    const FrontierPoint* point = all.select(std::stoll(arguments[i]));
    if (point == nullptr) {
      json["budgets"].push_back(nullptr);
      continue;
    }
    json["budgets"].push_back({{"peak_bytes", point->predicted.peak_reserved_bytes},
                               {"extra_ns", point->predicted.recompute_ns},
                               {"strategy", point->strategy}});
  }
  return json;
}

// Budgets from a tenth below the smallest reachable one to a tenth above the plain peak.
Json random(const Arguments& arguments) {
  const Trace trace = read_problem(arguments.at(0));
  const PlannerOptions options = options_of(arguments.at(1));
  const Frontier all = build_frontier(trace, options);
  std::mt19937_64 generator(1);
  const int64_t low = all.smallest_peak_bytes() / 10 * 9;
  const int64_t high = std::max(trace.peaks.rounded_bytes, low) / 10 * 11;
  std::vector<int64_t> budgets;
  for (int i = std::stoi(arguments.at(2)); i > 0; --i) {
    budgets.push_back(low + static_cast<int64_t>(generator() % static_cast<uint64_t>(high - low)));
  }
  std::sort(budgets.begin(), budgets.end());
  Json json = {{"budgets", budgets.size()}, {"planned", 0},         {"over", 0},
               {"peak_violations", 0},      {"time_violations", 0}, {"refused_wrongly", 0},
               {"check_failures", 0},       {"distinct_plans", 0}};
  const auto count = [&](const char* name, bool happened) {
    if (happened) json[name] = json[name].get<int>() + 1;
  };
  Plan previous;
  bool any = false;
  for (const int64_t budget : budgets) {
    Plan plan;
    try {
      plan = make_plan(trace, all, budget, options);
    } catch (const OutOfBudget&) {
      count("refused_wrongly", budget >= all.smallest_peak_bytes());
      continue;
    }
    count("planned", true);
    count("over", plan.predicted.peak_reserved_bytes > budget);
    count("check_failures", check_plan(trace, plan).verdict != Verdict::ok);
    count("distinct_plans", !any || plan.decisions != previous.decisions);
    if (any) {
      count("peak_violations",
            plan.predicted.peak_reserved_bytes < previous.predicted.peak_reserved_bytes);
      count("time_violations", plan.predicted.recompute_ns > previous.predicted.recompute_ns);
    }
    previous = std::move(plan);
    any = true;
  }
  return json;
}

Json bound(const Arguments& arguments) {
  const Trace trace = read_problem(arguments.at(0));
  BoundFinder finder(trace);
  Json json = Json::array();
  for (size_t i = 2; i < arguments.size(); ++i) {
    const double start = cpu_seconds();
    const int64_t ns = finder.lower_bound_ns(space_of(arguments[1]), std::stoll(arguments[i]));
    json.push_back({{"lower_bound_ns", ns}, {"cpu_seconds", cpu_seconds() - start}});
  }
  return json;
}

Json model(const Arguments& arguments) {
  const size_t width = arguments.size() > 2 ? std::stoul(arguments[2]) : 0;
  const Relaxation lp = relax(read_problem(arguments.at(0)), space_of(arguments.at(1)), width);
  Json json = {{"base_ns", lp.base_ns},
               {"cost_ns", lp.cost_ns},
               {"limit", lp.limit},
               {"least", lp.least},
               {"base_bytes", lp.base_bytes}};
  for (const char* list : {"rows", "spans", "choices"}) json[list] = Json::array();
  for (size_t r = 0; r < lp.least.size(); ++r) {
    Json row = Json::array();
    for (const auto& term : lp.rows[static_cast<int32_t>(r)]) {
      row.push_back({term.variable, term.factor});
    }
    json["rows"].push_back(std::move(row));
  }
  for (const auto& span : lp.spans) {
    json["spans"].push_back({span.variable, span.begin, span.end, span.bytes});
  }
  for (const auto& choice : lp.choices) {
    json["choices"].push_back({choice.storage, choice.dropped, choice.freed});
  }
  return json;
}

Json simulate(const Arguments& arguments) {
  const Trace trace = read_problem(arguments.at(0));
  DecisionTable table(trace.storages.size());
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& text = arguments[i];
    const size_t storage = std::stoul(text);
    table.action.at(storage) = Action::drop;
    table.keep.at(storage) = text.ends_with(":freed") ? 0 : 1;
  }
  const SimulationResult result = Simulator(trace).simulate(table);
  return {{"peak_bytes", result.peak_rounded_bytes},
          {"extra_ns", result.recompute_ns},
          {"step_ns", trace.step_ns}};
}

Json gpt(const Arguments& arguments) {
  const Trace trace = testing::gpt_trace({.layers = std::stoi(arguments.at(0))});
  write_trace(trace, arguments.at(1));
  return {{"ops", trace.ops.size()}, {"saves", trace.saves.size()}};
}

Json run(const std::string& command, const Arguments& arguments) {
  if (command == "frontier") return frontier(arguments);
  if (command == "random") return random(arguments);
  if (command == "bound") return bound(arguments);
  if (command == "model") return model(arguments);
  if (command == "simulate") return simulate(arguments);
  if (command == "gpt") return gpt(arguments);
  throw InvalidInput("there is no \"" + command + "\"; the head of planner_bench.cc lists them");
}

}  // namespace
}  // namespace lowtide::planner

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.empty()) throw lowtide::InvalidInput("what to do? See the head of planner_bench.cc");
    std::puts(lowtide::planner::run(words[0], {words.begin() + 1, words.end()}).dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "planner_bench: %s\n", error.what());
    return 2;
  }
}
