// Problems small enough to try every plan of, for tests of the planner: eager programs and joint
// graphs, and the optimum at every level.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/trace.h"
#include "planner/bound.h"
#include "planner/simulator.h"

namespace lowtide::planner {

struct TinyProblem {
  uint64_t seed = 0;
  Trace trace;
  std::vector<StorageId> candidates;
};

// `count` of them, half eager and half joint, with 2 to `most_candidates` candidates each.
[[nodiscard]] std::vector<TinyProblem> tiny_problems(int count, size_t most_candidates);

// Calls `visit` with every plan of the space: each candidate saved, dropped and kept once rebuilt,
// or (in `general`) dropped and freed after each use.
void for_each_plan(const TinyProblem& problem, Space space,
                   const std::function<void(const DecisionTable&)>& visit);

// The least extra time at each peak where it falls: strictly falling by rising peak.
using Optima = std::map<int64_t, int64_t>;  // rounded peak -> ns
[[nodiscard]] Optima optima(const TinyProblem& problem, Space space);

}  // namespace lowtide::planner
