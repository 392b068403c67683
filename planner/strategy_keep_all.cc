// The plain step: nothing dropped.
#include "planner/strategy.h"

namespace lowtide::planner {

void explore_keep_all(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  const DecisionTable table(simulator.trace().storages.size());
  archive.offer(table, simulator.simulate(table), "keep_all");
}

}  // namespace lowtide::planner
