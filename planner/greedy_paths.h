// The greedy part of both strategies: down from keep all by the Jane Street rule, as low as moves
// lead from there and from other states, then level by level. Everything seen goes to the archive
// of the search. Each returns early where the search is exhausted. Deterministic. Units: bytes, ns.
#pragma once

#include "planner/archive.h"
#include "planner/local_search.h"
#include "planner/simulator.h"

namespace lowtide::planner {

// The Jane Street procedure from the current assignment: again and again the move that pays the
// least time per byte of global peak freed, until none lowers the peak; where several instants tie
// at the peak, the area just below it.
void descend(LocalSearch& search);

// Finds the lowest peak it can, which `archive` then holds.
void find_floor(const Simulator& simulator, LocalSearch& search, const Archive& archive);

// `levels` levels from the largest peak to the smallest in `archive`, each lowered from the one
// above or the best plan known, then given back what time it does not need.
void walk_levels(LocalSearch& search, const Archive& archive, int levels);

// All of it from keep all: the floor, then the levels.
void explore_greedily(const Simulator& simulator, LocalSearch& search, const Archive& archive);

}  // namespace lowtide::planner
