// The checker's own telling of a joint trace under a plan: shares no code with JointWalk.
// Private to the checker. Units: bytes (requested), ns.
#pragma once

#include <cstdint>
#include <map>

#include "core/trace.h"

namespace lowtide::planner {

struct JointFigures {
  int64_t peak_requested_bytes = 0;
  int64_t extra_ns = 0;  // against the plan that keeps every save
};

// `dropped_keep`: dropped storages and their keep bits.
[[nodiscard]] JointFigures tell_joint(const Trace& trace,
                                      const std::map<StorageId, bool>& dropped_keep);

}  // namespace lowtide::planner
