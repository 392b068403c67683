// A way to look for plans, found by its name. A strategy simulates decision tables and offers them
// to the archive; it never sees a budget, so the frontier of a trace is the same for all budgets.
//
// Some take an argument, typed after a colon: "uniform:4".
//
// To add one: write strategy_<name>.cc with a function of this type and list it in strategy.cc.
// Must be deterministic: bounded by work (Simulator::work), never by a random device, and by a
// clock only where its argument asks for that. Throws InvalidInput where the argument or the trace
// is none that it can work with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/archive.h"
#include "planner/simulator.h"

namespace lowtide::planner {

// `argument` is empty where none was typed.
using Explore = void (*)(const Simulator& simulator, std::string_view argument, Archive& archive);

struct Strategy {
  std::string_view name;
  Explore explore;
  std::string_view argument = {};  // what may follow the colon, for messages; empty: nothing
};

void explore_keep_all(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_lowtide(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_greedy(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_knapsack(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_beam(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_uniform(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_sqrt(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_nested(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_chain_dp(const Simulator& simulator, std::string_view argument, Archive& archive);
void explore_selective(const Simulator& simulator, std::string_view argument, Archive& archive);

[[nodiscard]] const std::vector<Strategy>& strategies();
// The strategy that `text` names, "<name>" or "<name>:<argument>". Throws InvalidInput that lists
// the known names.
[[nodiscard]] const Strategy& find_strategy(std::string_view text);
// Runs it. Throws as above, and what the strategy throws.
void explore(std::string_view text, const Simulator& simulator, Archive& archive);

}  // namespace lowtide::planner
