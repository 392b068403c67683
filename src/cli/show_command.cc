// lowtide show FILE: one screen about a trace or a plan.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/summary.h"
#include "core/error.h"
#include "core/trace_file.h"
#include "planner/instance.h"

namespace lowtide::cli {
namespace {

struct ShowOptions {
  std::string file, trace;
  bool json = false;
};

void show_trace(const ShowOptions& options) {
  const Trace trace = planner::read_problem(options.file);
  if (options.json) {
    std::cout << trace_summary_json(trace);
  } else {
    print_trace(std::cout, trace);
  }
}

void show_plan(const ShowOptions& options) {
  const Plan plan = read_plan(options.file);
  if (options.json) {
    std::cout << plan_to_json(plan);
    return;
  }
  if (options.trace.empty()) {
    print_plan(std::cout, plan, nullptr);
    return;
  }
  const Trace trace = planner::read_problem(options.trace);
  if (trace.fingerprint() != plan.trace_fingerprint) {
    throw Mismatch("'" + options.trace + "' has fingerprint " +
                   fingerprint_text(trace.fingerprint()) + ", the plan belongs to trace " +
                   fingerprint_text(plan.trace_fingerprint) + ". Fix: name the plan's own trace");
  }
  for (const Decision& decision : plan.decisions) {
    if (static_cast<size_t>(decision.storage) >= trace.storages.size()) {
      throw Mismatch("the plan drops storage " + std::to_string(decision.storage) + ", which '" +
                     options.trace + "' does not have. Fix: plan again");
    }
  }
  print_plan(std::cout, plan, &trace);
}

}  // namespace

void add_show(CLI::App& app) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* verb = app.add_subcommand("show", "One screen about a trace or a plan");
  verb->add_option("FILE", options->file, "trace, remat-instance or plan file")->required();
  verb->add_option("--trace", options->trace, "for a plan: its trace, to show sizes and times");
  verb->add_flag("--json", options->json, "print the summary of a trace, or the plan, as JSON");
  verb->callback([options] {
    if (file_kind(options->file) == FileKind::plan) {
      show_plan(*options);
    } else {
      show_trace(*options);
    }
  });
}

}  // namespace lowtide::cli
