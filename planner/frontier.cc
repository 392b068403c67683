#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "core/error.h"
#include "planner/archive.h"
#include "planner/planner.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "planner/thinning.h"

namespace lowtide::planner {
namespace {

constexpr size_t kFewestPoints = 16;
constexpr size_t kMostPoints = 1024;
constexpr size_t kMostReplayedPoints = 256;  // replaying the reserved peak is slow
// Each point is a whole step to simulate: so many ops take about half a second, all together.
constexpr size_t kSimulatedOps = 4'000'000;
constexpr size_t kMaxLiveSet = 32;

size_t most_points(const Trace& trace, bool replayed) {
  const size_t affordable = kSimulatedOps / std::max<size_t>(1, trace.ops.size());
  return std::clamp(affordable, kFewestPoints, replayed ? kMostReplayedPoints : kMostPoints);
}

// How many fit before the end where each takes as long as the slowest did.
size_t points_until(Archive::Time end, std::chrono::steady_clock::duration slowest) {
  const auto left = end - std::chrono::steady_clock::now();
  return left <= slowest ? 0 : static_cast<size_t>(left / std::max(slowest, decltype(left)(1)));
}

void add_points(const Simulator& simulator, const Archive::Entry& entry,
                const ReservedReplay& reserved_replay, std::vector<FrontierPoint>& points) {
  const Trace& trace = simulator.trace();
  SimulationResult result = simulator.simulate(
      DecisionTable(trace, entry.decisions),
      {.record_memory_events = static_cast<bool>(reserved_replay), .record_live_set = true});
  FrontierPoint point{entry.decisions, {}, entry.strategy};
  Predicted& predicted = point.predicted;
  predicted.peak_requested_bytes = result.peak_requested_bytes;
  predicted.peak_rounded_bytes = result.peak_rounded_bytes;
  predicted.recompute_ns = result.recompute_ns;
  predicted.watch_ns = trace.watch_ns;
  predicted.replayed_ops = result.replayed_ops;
  predicted.peak_event = result.peak_event;
  result.live_at_peak.resize(std::min(result.live_at_peak.size(), kMaxLiveSet));
  predicted.live_at_peak = std::move(result.live_at_peak);
  std::vector<ReservedPeak> ways = {{result.peak_rounded_bytes, 0}};
  if (reserved_replay) ways = reserved_replay(result.memory_events);
  for (const ReservedPeak& way : ways) {
    LOWTIDE_CHECK(way.peak_bytes >= result.peak_rounded_bytes,
                  "the allocator's replay reserves " + std::to_string(way.peak_bytes) +
                      " bytes for " + std::to_string(result.peak_rounded_bytes) + " live ones");
    predicted.peak_reserved_bytes = way.peak_bytes;
    predicted.memory_ns = way.exchanges * trace.exchange_ns;
    predicted.step_ns =
        trace.step_ns + predicted.watch_ns + predicted.recompute_ns + predicted.memory_ns;
    points.push_back(point);
  }
}

}  // namespace

Frontier::Frontier(std::vector<FrontierPoint> points, const Trace& trace) {
  LOWTIDE_CHECK(!points.empty(),
                "a frontier needs at least one plan of trace \"" + trace.settings.name + "\"");
  // By rising time; then each point must lower the peak of all that are cheaper.
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::pair(a.predicted.step_ns, a.predicted.peak_reserved_bytes) <
           std::pair(b.predicted.step_ns, b.predicted.peak_reserved_bytes);
  });
  for (FrontierPoint& point : points) {
    if (points_.empty() ||
        point.predicted.peak_reserved_bytes < points_.back().predicted.peak_reserved_bytes) {
      points_.push_back(std::move(point));
    }
  }
}

const FrontierPoint* Frontier::select(int64_t budget_bytes, int64_t fixed_bytes) const {
  const auto fits = std::find_if(points_.begin(), points_.end(), [&](const FrontierPoint& point) {
    return point.predicted.peak_reserved_bytes <= budget_bytes - fixed_bytes;
  });
  return fits == points_.end() ? nullptr : &*fits;
}

int64_t Frontier::smallest_peak_bytes() const {
  return points_.back().predicted.peak_reserved_bytes;
}

Frontier build_frontier(const Trace& trace, const PlannerOptions& options) {
  if (options.strategies.empty()) throw InvalidInput("no strategy given; use \"lowtide\"");
  const Simulator simulator(trace);
  Archive archive;
  for (const std::string& name : options.strategies) {
    explore(name, simulator, archive);
  }
  const auto& entries = archive.entries();
  LOWTIDE_CHECK(!entries.empty(), "the strategies offered no plan");
  std::vector<PeakAndTime> figures;
  for (const auto& [peak, entry] : entries) figures.push_back({peak, entry.recompute_ns});
  std::vector<FrontierPoint> points;
  auto entry = entries.begin();
  // The lowest peak recomputes most: no other point takes longer.
  const auto begun = std::chrono::steady_clock::now();
  add_points(simulator, entry->second, options.reserved_replay, points);
  size_t most = most_points(trace, static_cast<bool>(options.reserved_replay));
  if (archive.end() != Archive::Time::max()) {
    const size_t more = points_until(archive.end(), std::chrono::steady_clock::now() - begun);
    most = std::clamp<size_t>(1 + more, 2, most);
  }
  size_t at = 0;
  for (const size_t kept : thin(figures, most)) {
    if (kept == 0) continue;
    std::advance(entry, kept - std::exchange(at, kept));
    add_points(simulator, entry->second, options.reserved_replay, points);
  }
  return Frontier(std::move(points), trace);
}

}  // namespace lowtide::planner
