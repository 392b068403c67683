// Which saved storages a step drops and recomputes, and what that is predicted (and then measured)
// to cost. Units: bytes and nanoseconds. A plan belongs to one trace (by fingerprint).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"

namespace lowtide {

// What to do with a storage that backward needs. An enum, not a bool: OFFLOAD comes later.
enum class Action : uint8_t { save, drop };

struct Decision {
  StorageId storage = kNone;
  Action action = Action::save;
  // A recomputed value is kept until its last use (true), or freed after each use and recomputed
  // again (false). Meaningful for `drop` only.
  bool keep_after_recompute = true;
  friend bool operator==(const Decision&, const Decision&) = default;
};

// How the budget is spent at the predicted peak, bytes.
struct BudgetAccount {
  int64_t resident_bytes = 0;    // alive across steps
  int64_t activation_bytes = 0;  // everything else alive at the peak instant (requested)
  int64_t rounding_bytes = 0;    // rounded - requested at the peak instant
  int64_t placement_bytes = 0;   // reserved - rounded at the reserved peak
  int64_t outside_bytes = 0;
  int64_t reserve_bytes = 0;   // the user's --reserve
  int64_t gradient_bytes = 0;  // part of activation_bytes that is gradients, for the reader
};

struct Predicted {
  int64_t peak_requested_bytes = 0;
  int64_t peak_rounded_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t step_ns = 0;  // plain + watch + recompute + memory
  int64_t recompute_ns = 0;
  int64_t memory_ns = 0;  // exchanges of memory: what holding no more than the peak costs
  int64_t watch_ns = 0;   // as in the trace
  int64_t replayed_ops = 0;
  int32_t peak_event = kNone;           // index into Trace::events
  std::vector<StorageId> live_at_peak;  // largest 32, descending bytes
};

struct Measured {  // filled by verify and the first enforced steps
  bool verified = false;
  int64_t compared = 0;    // storages recomputed and compared byte by byte
  int64_t mismatched = 0;  // put on the never-drop list
  int64_t peak_requested_bytes = 0;
  int64_t peak_rounded_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t step_ns = 0;
};

struct Bound {                  // of the extra time at this budget
  int64_t lower_bound_ns = -1;  // -1 = not computed
  double gap = -1;              // (recompute_ns - lower_bound_ns) / lower_bound_ns; -1 = null
  std::string space;            // "single", "general"; empty = none
};

struct Plan {
  uint64_t trace_fingerprint = 0;
  std::string strategy;
  int64_t budget_bytes = 0;
  BudgetAccount account;
  std::vector<Decision> decisions;  // only storages with action != save, ascending storage id
  Predicted predicted;
  Measured measured;
  Bound bound;

  // Throws FileError naming the first broken invariant that needs no trace to be seen (negative
  // bytes or time, decisions out of order, a gap that is not a number). Writers and readers call
  // it.
  void validate() const;
};

[[nodiscard]] const char* to_string(Action action);

}  // namespace lowtide
