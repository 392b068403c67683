// A way to look for plans, found by its name. A strategy simulates decision tables and offers them
// to the archive; it never sees a budget, so the frontier of a trace is the same for all budgets.
//
// To add one: write strategy_<name>.cc with a function of this type and list it in strategy.cc.
// Must be deterministic: bounded by work (Simulator::work), never by a clock or a random device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/archive.h"
#include "planner/simulator.h"

namespace lowtide::planner {

using Explore = void (*)(const Simulator& simulator, Archive& archive);

struct Strategy {
  std::string_view name;
  Explore explore;
};

void explore_keep_all(const Simulator& simulator, Archive& archive);
void explore_greedy(const Simulator& simulator, Archive& archive);

[[nodiscard]] const std::vector<Strategy>& strategies();
// Throws InvalidInput that lists the known names.
[[nodiscard]] const Strategy& find_strategy(std::string_view name);

}  // namespace lowtide::planner
