// Where searches for the lowest peak start. Plain greedy from "keep all" stops up to a fifth above
// it, since at the end several storages hold the peak together and a recomputed chain is a peak of
// its own. States cut at thin places of the forward (block inputs of a transformer) start below.
// Pure and deterministic.
#pragma once

#include <vector>

#include "planner/problem.h"
#include "planner/simulator.h"

namespace lowtide::planner {

// Everything dropped but what crosses 0, 1, 2, ... cuts of the forward, or every n-th candidate in
// `order`.
[[nodiscard]] std::vector<DecisionTable> cut_seeds(const Problem& problem,
                                                   const std::vector<StorageId>& order);

}  // namespace lowtide::planner
