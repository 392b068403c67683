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
  // `replay_ns` for each op of the trace: the median over all equal op instances (name, sizes,
  // integer arguments), 0 for those never recomputed. Empty where there are no samples.
  [[nodiscard]] std::vector<int64_t> prices(const Trace& trace) const;

 private:
  std::vector<std::vector<int64_t>> samples_;  // by ordinal
};

}  // namespace lowtide::runtime
