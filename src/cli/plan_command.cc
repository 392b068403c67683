// lowtide plan TRACE --budget B: the plan of the frontier that fits the budget.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/summary.h"
#include "core/bytes.h"
#include "core/trace_file.h"
#include "planner/instance.h"
#include "planner/planner.h"

namespace lowtide::cli {
namespace {

struct PlanOptions {
  std::string trace, budget, reserve = "0", output;
  std::vector<std::string> strategies;
  bool json = false;
};

void run(const PlanOptions& options) {
  planner::PlannerOptions planning;
  if (!options.strategies.empty()) planning.strategies = options.strategies;
  const int64_t budget = parse_bytes(options.budget, "--budget");
  planning.reserve_bytes = parse_bytes(options.reserve, "--reserve");
  const Trace trace = planner::read_problem(options.trace);
  const planner::Frontier frontier = planner::build_frontier(trace, planning);
  const Plan plan = planner::make_plan(trace, frontier, budget, planning);
  if (!options.output.empty()) write_plan(plan, options.output);
  if (options.json) {
    std::cout << plan_to_json(plan);
    return;
  }
  print_plan(std::cout, plan, &trace);
  if (!options.output.empty()) std::cout << "\nwritten to " << options.output << '\n';
}

}  // namespace

void add_plan(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Make the plan for a budget from a trace");
  verb->add_option("TRACE", options->trace, "trace or remat-instance file")->required();
  verb->add_option("--budget", options->budget, "memory of a step: 8GiB, 8GB, 300M or bytes")
      ->required();
  verb->add_option("--reserve", options->reserve, "bytes to leave free below the budget");
  verb->add_option("--strategies", options->strategies, "names, separated by commas")
      ->delimiter(',');
  verb->add_option("-o,--output", options->output, "plan file to write");
  verb->add_flag("--json", options->json, "print the plan file's text");
  verb->callback([options] { run(*options); });
}

}  // namespace lowtide::cli
