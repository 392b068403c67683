#include "planner/strategy.h"

#include "core/error.h"

namespace lowtide::planner {

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      {"keep_all", explore_keep_all},
      {"greedy", explore_greedy},
  };
  return all;
}

const Strategy& find_strategy(std::string_view name) {
  std::string known;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return strategy;
    known += (known.empty() ? "" : ", ") + std::string(strategy.name);
  }
  throw InvalidInput("unknown strategy \"" + std::string(name) + "\"; use one of: " + known);
}

}  // namespace lowtide::planner
