#include "planner/cut_seeds.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/index.h"

namespace lowtide::planner {
namespace {

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

}  // namespace

std::vector<DecisionTable> cut_seeds(const Problem& problem, const std::vector<StorageId>& order) {
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

}  // namespace lowtide::planner
