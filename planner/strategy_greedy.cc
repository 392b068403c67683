// The Jane Street procedure, and what it needs where it stops too early: other states to start
// from, and levels at which time is given back.
#include "planner/greedy_paths.h"
#include "planner/strategy.h"

namespace lowtide::planner {

void explore_greedy(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  LocalSearch search(simulator, archive, {.strategy = "greedy"});
  search.offer();
  explore_greedily(simulator, search, archive);
}

}  // namespace lowtide::planner
