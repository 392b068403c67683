#include "planner/greedy_paths.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/cut_seeds.h"
#include "planner/problem.h"

namespace lowtide::planner {
namespace {

constexpr size_t kStarts = 3;  // taken as low as they go
constexpr int kLevels = 64;
// Work limits (Evaluator::work) that end the search of a trace too large for it: 1e8 is about a
// second on one core. A transformer with 6 layers needs a tenth of them.
constexpr int64_t kFloorWork = 100'000'000;
constexpr int64_t kFloorWorkPerOp = 10'000;
constexpr int64_t kLevelWork = 200'000'000;

struct Start {
  int64_t peak_bytes = 0;
  int64_t extra_ns = 0;
  std::vector<Decision> decisions;
};

}  // namespace

void descend(LocalSearch& search) {
  for (;;) {
    search.lower_peak_to(0);
    const int64_t stuck = search.peak_bytes();
    search.lower_to(stuck - stuck / 64);
    if (search.peak_bytes() >= stuck || search.exhausted()) return;
  }
}

void find_floor(const Simulator& simulator, LocalSearch& search, const Archive& archive) {
  std::vector<Start> starts;
  const auto remember = [&] {
    starts.push_back({search.peak_bytes(), search.extra_ns(), search.decisions()});
  };
  search.restore({});
  descend(search);
  remember();
  for (const DecisionTable& table : cut_seeds(simulator.problem(), search.order())) {
    if (search.exhausted()) break;
    search.restore(table.to_decisions());
    remember();
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) {
    return std::pair(a.peak_bytes, a.extra_ns) < std::pair(b.peak_bytes, b.extra_ns);
  });
  for (size_t i = 0; i < std::min(kStarts, starts.size()); ++i) {
    search.restore(starts[i].decisions);
    search.sink();
  }
  search.restore(archive.entries().begin()->second.decisions);
  search.sink_deeper();
}

void walk_levels(LocalSearch& search, const Archive& archive, int levels) {
  const int64_t top = archive.entries().rbegin()->first;
  const int64_t floor = archive.entries().begin()->first;
  search.restore({});
  for (int i = 1; i <= levels && !search.exhausted(); ++i) {
    const int64_t level = top - (top - floor) / levels * i;
    const bool reached = search.lower_to(level);
    if (reached) search.trim(level);
    const Archive::Entry* best = archive.cheapest(level);
    if (best == nullptr || (reached && best->recompute_ns >= search.extra_ns())) continue;
    search.restore(best->decisions);
    search.trim(level);
  }
}

void explore_greedily(const Simulator& simulator, LocalSearch& search, const Archive& archive) {
  if (search.order().empty()) return;
  const auto ops = static_cast<int64_t>(simulator.trace().ops.size());
  search.allow(std::min(kFloorWork, kFloorWorkPerOp * ops));
  find_floor(simulator, search, archive);
  search.allow(kLevelWork);
  walk_levels(search, archive, kLevels);
}

}  // namespace lowtide::planner
