// lowtide check TRACE PLAN: the verdict of the independent checker.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/bytes.h"
#include "core/trace_file.h"
#include "planner/checker.h"
#include "planner/instance.h"

namespace lowtide::cli {
namespace {

struct CheckOptions {
  std::string trace, plan;
  bool json = false;
};

int run(const CheckOptions& options) {
  const Trace trace = planner::read_problem(options.trace);
  const Plan plan = read_plan(options.plan);
  const planner::CheckResult result = planner::check_plan(trace, plan);
  if (options.json) {
    const nlohmann::ordered_json json = {{"verdict", planner::to_string(result.verdict)},
                                         {"detail", result.detail},
                                         {"peak_requested_bytes", result.peak_requested_bytes},
                                         {"recompute_ns", result.recompute_ns}};
    std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else if (result) {
    std::cout << "ok: peak " << format_bytes(result.peak_requested_bytes) << " ("
              << result.peak_requested_bytes << " bytes requested), recompute "
              << format_duration(result.recompute_ns) << '\n';
  } else {
    std::cout << "failed: " << planner::to_string(result.verdict) << ": " << result.detail << '\n';
  }
  return result ? kOk : kCheckFailed;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* verb = app.add_subcommand("check", "Judge a plan against its trace");
  verb->add_option("TRACE", options->trace, "trace or remat-instance file")->required();
  verb->add_option("PLAN", options->plan, "plan file")->required();
  verb->add_flag("--json", options->json, "print the verdict as JSON");
  verb->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace lowtide::cli
