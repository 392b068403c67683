// From a recording to a placement plan: finds the step that repeats, what lives across steps and
// what only within them, and places all of it.
//
// A steady step is a circle. It is cut where least is live: there the plan's step begins, however
// far from the program's step mark. What lies before the first steady step (building the model,
// warm-up) is placed in the same arena, as a stretch of time that comes once. Blocks that are never
// freed lie at the bottom.
//
// Pure, thread-safe. Throws InvalidInput (with the fix) where the recording has no steady step.
#pragma once

#include <cstdint>
#include <span>

#include "hooks/placement_plan.h"
#include "hooks/placement_recorder.h"

namespace lowtide::hooks {

struct ProgramOptions {
  // Plan everything since the recording began: for a later run of the program. Otherwise only the
  // steady step.
  bool whole_program = true;
  // Blocks of so many requested bytes each are placed too, before the first step, as what lives for
  // ever. They belong to the stream that has most bytes. Not with `whole_program`.
  std::span<const int64_t> residents = {};
  int64_t max_nodes = 20'000;  // of the search, as PlacementOptions
};

// Streams whose last two steps differ are left out, except the one that asks for most bytes: then
// there is nothing to plan.
[[nodiscard]] PlacementPlan plan_program(const Recording& recording,
                                         const ProgramOptions& options = {});

}  // namespace lowtide::hooks
