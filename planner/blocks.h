// Finds a model's repeating parts (layers, blocks) where the program did not mark them: the period
// under which the forward's ops, by name and sizes, agree with themselves the longest.
#pragma once

#include <vector>

#include "core/trace.h"

namespace lowtide::planner {

// For Trace::blocks; empty where less than a quarter of the forward repeats. A cut between two
// blocks lies where the fewest bytes cross it. Deterministic; the work is bounded.
[[nodiscard]] std::vector<TraceBlock> find_blocks(const Trace& trace);

}  // namespace lowtide::planner
