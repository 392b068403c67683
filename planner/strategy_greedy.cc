// The Jane Street procedure, and what it needs where it stops too early: other states to start
// from, and repair. Plain greedy from "keep all" stops up to a fifth above the lowest reachable
// peak, since at the end several storages hold the peak together and a recomputed chain is a peak
// of its own. States cut at thin places of the forward (block inputs of a transformer) start below.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "planner/problem.h"
#include "planner/search.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

// Work limits (Simulator::work) that end the search of a trace too large for it: 1e9 is about 4 s
// on one core. A transformer with 6 layers needs a tenth of them.
constexpr int64_t kStartWork = 600'000'000;
constexpr int64_t kFloorWork = 300'000'000;
constexpr int64_t kLevelWork = 900'000'000;
constexpr int kStarts = 3;     // taken as low as they go
constexpr int kAttempts = 48;  // to get below the lowest of them
constexpr int kLevels = 64;

size_t at(int32_t id) { return static_cast<size_t>(id); }

DecisionTable drop_all_but(const Problem& problem, const std::vector<StorageId>& kept) {
  DecisionTable table(problem.trace().storages.size());
  for (const StorageId s : problem.candidates()) table.action[at(s)] = Action::drop;
  for (const StorageId s : kept) table.action[at(s)] = Action::save;
  return table;
}

// What crosses `count` cuts, spread evenly over the saved bytes, each at the thinnest place near.
std::vector<StorageId> cut_evenly(const std::vector<Cut>& cuts,
                                  const std::vector<int64_t>& bytes_before, int count) {
  std::vector<StorageId> kept;
  const int64_t total = bytes_before.back();
  const int64_t reach = total / (2 * (count + 1));
  for (int i = 1; i <= count; ++i) {
    const int64_t ideal = total / (count + 1) * i;
    const Cut* best = nullptr;
    int64_t best_distance = 0;
    for (size_t c = 0; c < cuts.size(); ++c) {
      const int64_t distance = std::abs(bytes_before[c] - ideal);
      if (distance > reach) continue;
      if (best == nullptr || cuts[c].crossing_bytes < best->crossing_bytes ||
          (cuts[c].crossing_bytes == best->crossing_bytes && distance < best_distance)) {
        best = &cuts[c];
        best_distance = distance;
      }
    }
    if (best != nullptr) kept.insert(kept.end(), best->crossing.begin(), best->crossing.end());
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::vector<DecisionTable> seeds(const Problem& problem, const std::vector<StorageId>& order) {
  std::vector<DecisionTable> tables = {drop_all_but(problem, {})};
  const std::vector<Cut> cuts = problem.forward_cuts();
  if (!cuts.empty()) {
    // Saved bytes made up to each cut.
    std::vector<std::pair<OpId, int64_t>> made;
    for (const StorageId s : problem.candidates()) {
      made.emplace_back(problem.trace().storages[at(s)].writers.front(), problem.size(s).rounded);
    }
    std::sort(made.begin(), made.end());
    std::vector<int64_t> bytes_before;
    size_t next = 0;
    int64_t sum = 0;
    for (const Cut& cut : cuts) {
      for (; next < made.size() && made[next].first <= cut.after; ++next) sum += made[next].second;
      bytes_before.push_back(sum);
    }
    for (int count = 1; count <= static_cast<int>(cuts.size()) && count <= 256;
         count = std::max(count + 1, count * 9 / 8)) {
      tables.push_back(drop_all_but(problem, cut_evenly(cuts, bytes_before, count)));
    }
  }
  for (const size_t stride : {2, 3, 4, 6, 8, 12, 16}) {
    std::vector<StorageId> kept;
    for (size_t i = stride - 1; i < order.size(); i += stride) kept.push_back(order[i]);
    tables.push_back(drop_all_but(problem, kept));
  }
  return tables;
}

}  // namespace

void explore_greedy(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  Search start_search(simulator, archive, "greedy", kStartWork);
  const Search::State plain =
      start_search.evaluate(DecisionTable(simulator.trace().storages.size()));
  if (start_search.order().empty()) return;

  std::vector<Search::State> starts = {plain};
  start_search.descend(starts.front());
  for (DecisionTable& table : seeds(simulator.problem(), start_search.order())) {
    starts.push_back(start_search.evaluate(std::move(table)));
  }
  const auto lower = [](const Search::State& a, const Search::State& b) {
    return std::pair(a.peak(), a.cost()) < std::pair(b.peak(), b.cost());
  };
  std::stable_sort(starts.begin(), starts.end(), lower);
  if (starts.size() > kStarts) starts.erase(starts.begin() + kStarts, starts.end());
  for (Search::State& start : starts) start_search.sink(start);
  Search::State floor = *std::min_element(starts.begin(), starts.end(), lower);
  Search floor_search(simulator, archive, "greedy", kFloorWork);
  floor_search.sink_deeper(floor, kAttempts);

  // Level by level: the level above taken further, or the best plan known; then give time back.
  Search level_search(simulator, archive, "greedy", kLevelWork);
  Search::State state = plain;
  for (int level = 1; level <= kLevels && !level_search.exhausted(); ++level) {
    const int64_t target = plain.peak() - (plain.peak() - floor.peak()) / kLevels * level;
    const bool reached = level_search.lower_to(state, target);
    if (reached) level_search.cheapen(state, target);
    const Archive::Entry* best = archive.cheapest(target);
    if (best != nullptr && (!reached || best->recompute_ns < state.cost())) {
      state = level_search.restore(*best);
      level_search.cheapen(state, target);
    }
  }
}

}  // namespace lowtide::planner
