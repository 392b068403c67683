// A placement plan: which address each memory request of a program gets, inside one contiguous
// range (the arena). Made by placement_program.h, kept in files by placement_file.h, followed by
// placement_follower.h.
//
// The requests of one stream are followed on their own and lie in a band of their own, since only
// the stream's order makes it safe to use memory again at once. Steps are what lies between two
// step marks; the last one repeats for ever, those before it are the program's start.
//
// Plain values. Bytes are whole 512 B; offsets are from the arena's beginning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hooks/free_ranges.h"

namespace lowtide::hooks {

using PlannedSlot = FreeRanges::Range;

struct PlannedRequest {
  int64_t bytes = 0;  // rounded
  int32_t op = -1;    // -1: any
  int32_t slot = -1;  // the first of its slots; -1: it is never given back, hence has none
  int32_t slots = 0;  // how many: a buffer that outlives its step takes turns
};

struct PlannedStep {
  std::vector<PlannedRequest> requests;
  // How many of them come before the step mark: the plan's step may begin where least is live,
  // which need not be where the program puts its mark.
  int32_t mark_at = 0;
};

struct PlannedBand {  // of one stream; streams are told apart by who asks first
  int64_t offset = 0;
  int64_t bytes = 0;
  std::vector<PlannedSlot> slots;
  std::vector<PlannedStep> steps;  // never empty
};

struct PlacementPlan {
  static constexpr int64_t kGranule = 512;
  static constexpr int64_t kMostBytes = int64_t{1} << 56;  // no device has more
  int64_t bytes = 0;                                       // of the arena
  int64_t lower_bound_bytes = 0;  // no placement of these lifetimes is lower
  std::vector<PlannedBand> bands;
};

// What is wrong with a plan, with the fix; empty: nothing. Whatever it says, a plan that passes
// leads nobody outside of its arena.
[[nodiscard]] std::string find_fault(const PlacementPlan& plan);

}  // namespace lowtide::hooks
