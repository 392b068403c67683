// What recomputing each forward op and exchanging memory took in verify steps, and the prices made
// from it.
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

// As in the trace: TraceOp::replay_ns of each op, Trace::exchange_ns.
struct Prices {
  std::vector<int64_t> replay_ns;
  int64_t exchange_ns = 0;
};

class ReplayTimes {
 public:
  // One recomputation of the forward op with this ordinal.
  void add(int32_t ordinal, int64_t ns);
  // Exchanges of memory in one step, and what they took in all.
  void add_exchanges(int64_t count, int64_t ns);
  void clear() { *this = {}; }
  // For each op of the trace: the median over all equal op instances (name, sizes, integer
  // arguments), 0 for those never recomputed. Without `replay_ns` where there are no samples; an
  // exchange costs the mean, 0 where there were none.
  [[nodiscard]] Prices prices(const Trace& trace) const;

 private:
  std::vector<std::vector<int64_t>> samples_;  // by ordinal
  int64_t exchanges_ = 0;
  int64_t exchange_ns_ = 0;
};

}  // namespace lowtide::runtime
