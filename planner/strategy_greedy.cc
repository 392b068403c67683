// The Jane Street procedure, and what it needs where it stops too early: other states to start
// from, and levels at which time is given back.
#include <algorithm>

#include "planner/greedy_paths.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

// Work limits (Evaluator::work) that end the search of a trace too large for it: 1e8 is about a
// second on one core. A transformer with 6 layers needs a tenth of them.
constexpr int64_t kFloorWork = 200'000'000;
constexpr int64_t kFloorWorkPerOp = 20'000;
constexpr int64_t kLevelWork = 200'000'000;
constexpr int kLevels = 64;

}  // namespace

void explore_greedy(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  LocalSearch search(simulator, archive, {.strategy = "greedy"});
  search.offer();
  if (search.order().empty()) return;
  const auto ops = static_cast<int64_t>(simulator.trace().ops.size());
  find_floor(simulator, search, archive, std::min(kFloorWork, kFloorWorkPerOp * ops));
  walk_levels(search, archive, kLevels, kLevelWork);
}

}  // namespace lowtide::planner
