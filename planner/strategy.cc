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

void explore(std::string_view text, const Simulator& simulator, Archive& archive) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view argument =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  std::string known;
  for (const Strategy& strategy : strategies()) {
    std::string shown(strategy.name);
    if (!strategy.argument.empty()) shown += "[:" + std::string(strategy.argument) + "]";
    if (strategy.name == name) {
      if (colon != std::string_view::npos && (strategy.argument.empty() || argument.empty())) {
        throw InvalidInput("strategy \"" + std::string(text) + "\" is not known; use " + shown);
      }
      return strategy.explore(simulator, argument, archive);
    }
    known += (known.empty() ? "" : ", ") + shown;
  }
  throw InvalidInput("unknown strategy \"" + std::string(text) + "\"; use one of: " + known);
}

}  // namespace lowtide::planner
