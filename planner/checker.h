// Independent judge of plans: shares no code with simulator and strategies, and gives one named
// reason per kind of failure. Slow and plain on purpose (it walks the events with sets and maps).
#pragma once

#include <cstdint>
#include <string>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::planner {

enum class Verdict : uint8_t {
  ok,
  wrong_trace,       // fingerprint differs
  unknown_storage,   // decision about a storage the trace does not have
  not_recomputable,  // drops a storage that must be kept
  not_saved,         // drops a storage nobody saves
  over_budget,       // peak + outside + reserve above the budget
  wrong_peak,        // predicted peak differs from the checker's own
  wrong_time,        // predicted recompute time differs from the checker's own
};

struct CheckResult {
  Verdict verdict = Verdict::ok;
  std::string detail;                // names the storage and the numbers
  int64_t peak_requested_bytes = 0;  // the checker's own figures
  int64_t recompute_ns = 0;
  explicit operator bool() const { return verdict == Verdict::ok; }
};

[[nodiscard]] CheckResult check_plan(const Trace& trace, const Plan& plan);
[[nodiscard]] const char* to_string(Verdict verdict);

}  // namespace lowtide::planner
