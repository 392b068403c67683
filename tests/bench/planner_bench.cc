// Prints what planning costs on synthetic programs: one simulated step, and a whole frontier.
// Judges nothing; `scripts/bench` has the benches that do.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

// CPU time of this process: other programs on the machine do not count.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double simulate_us(const Simulator& simulator, const DecisionTable& table) {
  double best = 1e9;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double start = cpu_seconds();
    for (int i = 0; i < 20; ++i) (void)simulator.simulate(table, {.level_bytes = 0});
    best = std::min(best, (cpu_seconds() - start) / 20 * 1e6);
  }
  return best;
}

void report(const std::string& name, const Trace& trace) {
  const Simulator simulator(trace);
  const Problem& problem = simulator.problem();
  DecisionTable none(trace.storages.size());
  DecisionTable all = none;
  DecisionTable some = none;
  for (size_t i = 0; i < problem.candidates().size(); ++i) {
    const auto s = static_cast<size_t>(problem.candidates()[i]);
    all.action[s] = Action::drop;
    if (i % 10 == 0) some.action[s] = Action::drop;
  }
  std::printf("%s: %zu ops, %zu events (%zu folded), %zu saves, %zu candidates\n", name.c_str(),
              trace.ops.size(), trace.events.size(), problem.steps().size(), trace.saves.size(),
              problem.candidates().size());
  std::printf("  simulate: %.1f us keep all, %.1f us every 10th dropped, %.1f us all dropped\n",
              simulate_us(simulator, none), simulate_us(simulator, some),
              simulate_us(simulator, all));

  const double start = cpu_seconds();
  const Frontier frontier = build_frontier(trace);
  const double seconds = cpu_seconds() - start;
  const auto peak = [](const FrontierPoint& p) { return p.predicted.peak_reserved_bytes; };
  const auto& points = frontier.points();
  const int64_t fixed = problem.resident().rounded;
  std::printf(
      "  frontier: %.2f CPU s, %zu points, peak %.1f -> %.1f MB (%.1f%% of plain, "
      "activations %.1f%%)\n",
      seconds, points.size(), peak(points.front()) / 1e6, peak(points.back()) / 1e6,
      100.0 * peak(points.back()) / peak(points.front()),
      100.0 * (peak(points.back()) - fixed) / (peak(points.front()) - fixed));
  for (const int percent : {90, 75, 60, 50, 40, 33, 25}) {
    const FrontierPoint* point =
        frontier.select(fixed + (peak(points.front()) - fixed) / 100 * percent);
    if (point == nullptr) continue;
    std::printf("    %3d%% of activations: +%.2f%% time, %zu dropped, %s\n", percent,
                100.0 * point->predicted.recompute_ns / trace.step_ns, point->decisions.size(),
                point->strategy.c_str());
  }
  std::printf("    smallest: +%.2f%% time, %zu dropped\n",
              100.0 * points.back().predicted.recompute_ns / trace.step_ns,
              points.back().decisions.size());
}

}  // namespace
}  // namespace lowtide::planner

int main() {
  using namespace lowtide;
  planner::report("gpt 6 layers", testing::gpt_trace({.layers = 6}));
  planner::report("gpt 6 layers, no dropout", testing::gpt_trace({.layers = 6, .dropout = false}));
  planner::report("gpt 20 layers", testing::gpt_trace({.layers = 20}));
  planner::report("unet 5 levels", testing::unet_trace(5));
  planner::report("chain 100", testing::chain_trace(100));
}
