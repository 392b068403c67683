#include "planner/strategy.h"

#include "core/error.h"

namespace lowtide::planner {

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      {"keep_all", explore_keep_all},
      {"greedy", explore_greedy},
      {"lowtide", explore_lowtide, "single+peak=BYTES+seconds=S"},
      {"knapsack", explore_knapsack, "flops"},
      {"beam", explore_beam},
      {"uniform", explore_uniform, "N"},
      {"sqrt", explore_sqrt},
      {"nested", explore_nested},
      {"chain_dp", explore_chain_dp},
      {"selective", explore_selective},
  };
  return all;
}

const Strategy& find_strategy(std::string_view text) {
  const size_t colon = text.find(':');
  std::string known;
  for (const Strategy& strategy : strategies()) {
    std::string shown(strategy.name);
    if (!strategy.argument.empty()) shown += "[:" + std::string(strategy.argument) + "]";
    if (strategy.name == text.substr(0, colon)) {
      const bool empty = colon != std::string_view::npos && colon + 1 == text.size();
      if (empty || (colon != std::string_view::npos && strategy.argument.empty())) {
        throw InvalidInput("strategy \"" + std::string(text) + "\" is not known; use " + shown);
      }
      return strategy;
    }
    known += (known.empty() ? "" : ", ") + shown;
  }
  throw InvalidInput("unknown strategy \"" + std::string(text) + "\"; use one of: " + known);
}

void explore(std::string_view text, const Simulator& simulator, Archive& archive) {
  const Strategy& strategy = find_strategy(text);
  const size_t colon = text.find(':');
  const bool bare = colon == std::string_view::npos;
  strategy.explore(simulator, bare ? std::string_view() : text.substr(colon + 1), archive);
}

}  // namespace lowtide::planner
