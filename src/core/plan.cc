#include "core/plan.h"

#include <cmath>

#include "core/error.h"

namespace lowtide {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw FileError("invalid plan: " + where + ": " + problem +
                  ". Fix: the plan is damaged or edited; plan again from the trace");
}

void check_value(int64_t value, const char* name) {
  if (value < 0) fail(name, "is negative");
}

}  // namespace

const char* to_string(Action action) {
  switch (action) {
    case Action::save:
      return "save";
    case Action::drop:
      return "drop";
  }
  return "unknown";
}

void Plan::validate() const {
  check_value(budget_bytes, "budget_bytes");
  check_value(account.resident_bytes, "account.resident_bytes");
  check_value(account.activation_bytes, "account.activation_bytes");
  check_value(account.rounding_bytes, "account.rounding_bytes");
  check_value(account.placement_bytes, "account.placement_bytes");
  check_value(account.outside_bytes, "account.outside_bytes");
  check_value(account.reserve_bytes, "account.reserve_bytes");
  check_value(account.gradient_bytes, "account.gradient_bytes");
  StorageId previous = kNone;
  for (size_t i = 0; i < decisions.size(); ++i) {
    const std::string where = "decisions[" + std::to_string(i) + "]";
    if (decisions[i].storage < 0) fail(where, "storage is negative");
    if (decisions[i].storage <= previous) fail(where, "storages are not in rising order");
    if (decisions[i].action != Action::drop) fail(where, "only dropped storages are listed");
    previous = decisions[i].storage;
  }
  check_value(predicted.peak_requested_bytes, "predicted.peak_requested_bytes");
  check_value(predicted.peak_rounded_bytes, "predicted.peak_rounded_bytes");
  check_value(predicted.peak_reserved_bytes, "predicted.peak_reserved_bytes");
  check_value(predicted.step_ns, "predicted.step_ns");
  // Below zero where a joint graph computes in the backward only what it computed twice before.
  if (predicted.recompute_ns < -predicted.step_ns) {
    fail("predicted.recompute_ns", "saves more than the whole step");
  }
  check_value(predicted.memory_ns, "predicted.memory_ns");
  check_value(predicted.watch_ns, "predicted.watch_ns");
  check_value(predicted.replayed_ops, "predicted.replayed_ops");
  if (predicted.peak_event < kNone) fail("predicted.peak_event", "is negative");
  for (size_t i = 0; i < predicted.live_at_peak.size(); ++i) {
    if (predicted.live_at_peak[i] < 0) {
      fail("predicted.live_at_peak[" + std::to_string(i) + "]", "is negative");
    }
  }
  check_value(measured.compared, "measured.compared");
  check_value(measured.mismatched, "measured.mismatched");
  check_value(measured.peak_requested_bytes, "measured.peak_requested_bytes");
  check_value(measured.peak_rounded_bytes, "measured.peak_rounded_bytes");
  check_value(measured.peak_reserved_bytes, "measured.peak_reserved_bytes");
  check_value(measured.step_ns, "measured.step_ns");
  if (bound.lower_bound_ns < -1) fail("bound.lower_bound_ns", "is negative");
  if (!std::isfinite(bound.gap) || (bound.gap < 0 && bound.gap != -1)) {
    fail("bound.gap", "is negative or not a number");
  }
}

}  // namespace lowtide
