// lowtide frontier TRACE: what each budget costs, as a table and a small plot, or how strategies
// compare at a few budgets.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/frontier_chart.h"
#include "cli/plot.h"
#include "cli/text_table.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/file_io.h"
#include "planner/blocks.h"
#include "planner/instance.h"
#include "planner/planner.h"

namespace lowtide::cli {
namespace {

using planner::FrontierPoint;

struct FrontierOptions {
  std::string trace;
  std::vector<std::string> strategies;
  std::string svg, html;
  int budgets = 0;  // 0: one frontier of all strategies together
  int64_t batch = 0;
  bool json = false, all = false, mark_blocks = false;
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

void draw(const FrontierOptions& options, const Trace& trace, const std::vector<ChartLine>& lines) {
  if (!options.svg.empty()) write_whole_file(options.svg, frontier_svg(trace, lines));
  if (!options.html.empty()) write_whole_file(options.html, frontier_html(trace, lines));
}

void run_together(const FrontierOptions& options, const Trace& trace,
                  const planner::PlannerOptions& planning) {
  const planner::Frontier frontier = planner::build_frontier(trace, planning);
  draw(options, trace, {{"frontier", &frontier.points()}});
  if (options.json) {
    print_json(trace, frontier.points());
  } else {
    print_text(trace, frontier.points(), options.all);
  }
}

void run_compared(const FrontierOptions& options, const Trace& trace,
                  const planner::PlannerOptions& planning) {
  const Comparison comparison = compare(trace, planning, options.budgets);
  std::vector<ChartLine> lines;
  for (const StrategyResult& strategy : comparison.strategies) {
    if (strategy.frontier) lines.push_back({strategy.name, &strategy.frontier->points()});
  }
  draw(options, trace, lines);
  if (options.json) {
    std::cout << comparison_json(trace, comparison, options.batch);
  } else {
    print_comparison(std::cout, trace, comparison, options.batch);
  }
}

void run(const FrontierOptions& options) {
  planner::PlannerOptions planning;
  if (!options.strategies.empty()) planning.strategies = options.strategies;
  Trace trace = planner::read_problem(options.trace);
  if (options.mark_blocks) {
    trace.blocks = planner::find_blocks(trace);
    if (trace.blocks.empty()) {
      throw InvalidInput("--mark-blocks: the forward of '" + options.trace +
                         "' does not repeat itself. Fix: leave the flag out, or mark blocks by "
                         "hand (field \"blocks\" of the trace file)");
    }
  }
  if (options.budgets > 0) {
    run_compared(options, trace, planning);
  } else {
    run_together(options, trace, planning);
  }
}

}  // namespace

void add_frontier(CLI::App& app) {
  const auto options = std::make_shared<FrontierOptions>();
  CLI::App* verb = app.add_subcommand("frontier", "What each budget costs, from a trace");
  verb->add_option("TRACE", options->trace, "trace or remat-instance file")->required();
  verb->add_option("--strategies", options->strategies,
                   "names, separated by commas; with --budgets also \"all\"")
      ->delimiter(',');
  verb->add_option("--budgets", options->budgets,
                   "compare the strategies with each other at so many budgets")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--batch", options->batch, "samples in a step: speed as samples/s")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--mark-blocks", options->mark_blocks,
                 "find the model's repeating blocks, which uniform, sqrt, nested, chain_dp and "
                 "selective need");
  verb->add_option("--svg", options->svg, "draw the frontiers into this file");
  verb->add_option("--html", options->html, "the drawing and all plans as a page");
  verb->add_flag("--all", options->all, "print every plan, not a selection");
  verb->add_flag("--json", options->json, "print every plan, or the comparison, as JSON");
  verb->callback([options] { run(*options); });
}

}  // namespace lowtide::cli
