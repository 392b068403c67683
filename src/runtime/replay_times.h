// What recomputing each forward op took in verify steps, and the prices made from it.
//
// The probe times the forward's own run of an op. Recomputing it costs something else: the forward
// writes to fresh pages, a replay to memory that is in use already, and it builds its arguments
// from a recipe. So verify, which recomputes everything once anyway, is what prices the plan.
// Not thread-safe: guarded by Runtime::mutex. Units: ns.
#pragma once

#include <cstdint>
#include <vector>

#include "core/trace.h"
#include "runtime/plan_index.h"

namespace lowtide::runtime {

class ReplayTimes {
 public:
  // One recomputation of the forward op with this ordinal.
  void add(int32_t ordinal, int64_t ns);
  void clear() { samples_.clear(); }
  // Sets `replay_ns` of the ops that were recomputed: the median over all equal op instances (name,
  // sizes, integer arguments). `index`: which op an ordinal is. False, and nothing is changed,
  // where there are no samples.
  bool price(Trace& trace, const PlanIndex& index) const;

 private:
  std::vector<std::vector<int64_t>> samples_;  // by ordinal
};

}  // namespace lowtide::runtime
