// lowtide frontier TRACE: what each budget costs, as a table and a small plot.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/plot.h"
#include "cli/text_table.h"
#include "core/bytes.h"
#include "planner/instance.h"
#include "planner/planner.h"

namespace lowtide::cli {
namespace {

using planner::FrontierPoint;

struct Options {
  std::string trace;
  std::vector<std::string> strategies;
  bool json = false, all = false;
};

// At most `most` points, evenly spread over the peaks, both ends included.
std::vector<const FrontierPoint*> spread(const std::vector<FrontierPoint>& points, size_t most) {
  std::vector<const FrontierPoint*> result;
  const int64_t top = points.front().predicted.peak_reserved_bytes;
  const int64_t span = top - points.back().predicted.peak_reserved_bytes;
  int64_t last_slot = -1;
  for (const FrontierPoint& point : points) {
    const auto share = static_cast<double>(top - point.predicted.peak_reserved_bytes) /
                       static_cast<double>(std::max<int64_t>(span, 1));
    const auto slot = static_cast<int64_t>(share * static_cast<double>(most - 1));
    if (slot == last_slot && points.size() > most) continue;
    last_slot = slot;
    result.push_back(&point);
  }
  return result;
}

void print_json(const Trace& trace, const std::vector<FrontierPoint>& points) {
  nlohmann::ordered_json json = {{"trace_fingerprint", fingerprint_text(trace.fingerprint())},
                                 {"step_ns", trace.step_ns},
                                 {"outside_bytes", trace.outside_bytes},
                                 {"points", nlohmann::ordered_json::array()}};
  for (const FrontierPoint& point : points) {
    const Predicted& p = point.predicted;
    json["points"].push_back({{"budget_bytes", p.peak_reserved_bytes + trace.outside_bytes},
                              {"peak_reserved_bytes", p.peak_reserved_bytes},
                              {"peak_rounded_bytes", p.peak_rounded_bytes},
                              {"peak_requested_bytes", p.peak_requested_bytes},
                              {"step_ns", p.step_ns},
                              {"recompute_ns", p.recompute_ns},
                              {"replayed_ops", p.replayed_ops},
                              {"dropped", point.decisions.size()},
                              {"strategy", point.strategy}});
  }
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print_text(const Trace& trace, const std::vector<FrontierPoint>& points, bool all) {
  const int64_t plain_ns = points.front().predicted.step_ns;
  std::cout << printable(trace.settings.name) << ": " << points.size()
            << " plans from keep all to the smallest reachable peak, step "
            << format_duration(plain_ns) << "\n\n";
  TextTable table({"budget", "peak reserved", "peak requested", "extra time", "recompute",
                   "dropped", "replayed ops", "strategy"},
                  true);
  constexpr size_t kRows = 24;
  for (const FrontierPoint* point : spread(points, all ? points.size() + 1 : kRows)) {
    const Predicted& p = point->predicted;
    table.add({std::to_string(p.peak_reserved_bytes + trace.outside_bytes),
               format_bytes(p.peak_reserved_bytes), format_bytes(p.peak_requested_bytes),
               percent(p.recompute_ns, plain_ns), format_duration(p.recompute_ns),
               std::to_string(point->decisions.size()), std::to_string(p.replayed_ops),
               point->strategy});
  }
  table.print(std::cout);
  if (points.size() > 1) {
    std::vector<PlotPoint> plot;
    for (const FrontierPoint& point : points) {
      plot.push_back({static_cast<double>(point.predicted.recompute_ns),
                      static_cast<double>(point.predicted.peak_reserved_bytes)});
    }
    const Predicted &first = points.front().predicted, &last = points.back().predicted;
    std::cout << '\n';
    print_plot(
        std::cout, plot,
        {format_bytes(last.peak_reserved_bytes), format_bytes(first.peak_reserved_bytes),
         "+" + percent(first.recompute_ns, plain_ns), "+" + percent(last.recompute_ns, plain_ns)});
  }
}

void run(const Options& options) {
  planner::PlannerOptions planning;
  if (!options.strategies.empty()) planning.strategies = options.strategies;
  const Trace trace = planner::read_problem(options.trace);
  const planner::Frontier frontier = planner::build_frontier(trace, planning);
  if (options.json) {
    print_json(trace, frontier.points());
  } else {
    print_text(trace, frontier.points(), options.all);
  }
}

}  // namespace

void add_frontier(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("frontier", "What each budget costs, from a trace");
  verb->add_option("TRACE", options->trace, "trace or remat-instance file")->required();
  verb->add_option("--strategies", options->strategies, "names, separated by commas")
      ->delimiter(',');
  verb->add_flag("--all", options->all, "print every plan, not a selection");
  verb->add_flag("--json", options->json, "print every plan as JSON");
  verb->callback([options] { run(*options); });
}

}  // namespace lowtide::cli
