#include <algorithm>
#include <cstdio>
#include <ostream>

#include "cli/summary.h"
#include "cli/text_table.h"
#include "cli/trace_facts.h"
#include "core/bytes.h"
#include "planner/simulator.h"

namespace lowtide::cli {
namespace {

constexpr size_t kDropRows = 16;

void print_account(std::ostream& out, const Plan& plan) {
  const BudgetAccount& a = plan.account;
  TextTable table({"account at the peak", "bytes", ""});
  const auto row = [&](const char* name, int64_t bytes) {
    table.add({name, std::to_string(bytes), format_bytes(bytes)});
  };
  row("resident", a.resident_bytes);
  row("activations and gradients", a.activation_bytes);
  row("  of which gradients", a.gradient_bytes);
  row("rounding", a.rounding_bytes);
  row("placement", a.placement_bytes);
  row("outside", a.outside_bytes);
  row("reserve", a.reserve_bytes);
  const int64_t used = plan.predicted.peak_reserved_bytes + a.outside_bytes + a.reserve_bytes;
  row("left of the budget", plan.budget_bytes - used);
  table.print(out);
}

void print_dropped(std::ostream& out, const Plan& plan, const Trace& trace) {
  std::vector<Decision> dropped = plan.decisions;
  std::stable_sort(dropped.begin(), dropped.end(), [&](const Decision& a, const Decision& b) {
    return trace.storages[static_cast<size_t>(a.storage)].bytes >
           trace.storages[static_cast<size_t>(b.storage)].bytes;
  });
  int64_t bytes = 0;
  for (const Decision& d : dropped) bytes += trace.storages[static_cast<size_t>(d.storage)].bytes;
  out << "\ndropped: " << dropped.size() << " storages, " << format_bytes(bytes) << '\n';
  if (dropped.empty()) return;
  const planner::Simulator simulator(trace);
  planner::DecisionTable decisions(trace, plan.decisions);
  const int64_t peak = simulator.simulate(decisions).peak_rounded_bytes;
  TextTable table({"storage", "size", "recipe", "peak if kept", "after recompute", "what it is"},
                  true);
  for (size_t i = 0; i < std::min(kDropRows, dropped.size()); ++i) {
    const StorageId id = dropped[i].storage;
    Action& action = decisions.action[static_cast<size_t>(id)];
    action = Action::save;
    const int64_t gain = simulator.simulate(decisions).peak_rounded_bytes - peak;
    action = dropped[i].action;
    table.add({std::to_string(id), format_bytes(trace.storages[static_cast<size_t>(id)].bytes),
               format_duration(recipe_ns(trace, id)), (gain < 0 ? "" : "+") + format_bytes(gain),
               dropped[i].keep_after_recompute ? "kept" : "freed", origin_of(trace, id)});
  }
  table.print(out);
  if (dropped.size() > kDropRows)
    out << "  and " << dropped.size() - kDropRows << " smaller ones\n";
}

}  // namespace

void print_plan(std::ostream& out, const Plan& plan, const Trace* trace) {
  const Predicted& p = plan.predicted;
  const Measured& m = plan.measured;
  out << "plan by " << printable(plan.strategy) << " for trace "
      << fingerprint_text(plan.trace_fingerprint) << '\n';
  out << "  budget      " << format_bytes(plan.budget_bytes) << " (" << plan.budget_bytes
      << " bytes)\n";
  out << "  peak        " << format_bytes(p.peak_reserved_bytes) << " reserved, "
      << format_bytes(p.peak_rounded_bytes) << " rounded, " << format_bytes(p.peak_requested_bytes)
      << " requested\n";
  out << "  step        " << format_duration(p.step_ns) << ", of which recompute "
      << format_duration(p.recompute_ns) << " (" << percent(p.recompute_ns, p.step_ns) << ", "
      << p.replayed_ops << " ops), exchanges of memory " << format_duration(p.memory_ns);
  if (p.watch_ns > 0) out << ", watching " << format_duration(p.watch_ns);
  out << '\n';
  if (m.verified) {
    out << "  measured    " << format_bytes(m.peak_reserved_bytes) << " reserved, step "
        << format_duration(m.step_ns) << "; " << m.compared << " storages compared, "
        << m.mismatched << " differed\n";
  } else {
    out << "  measured    not yet\n";
  }
  if (plan.bound.lower_bound_ns >= 0) {
    out << "  bound       at least " << format_duration(plan.bound.lower_bound_ns)
        << " extra (space: " << printable(plan.bound.space) << ")";
    if (plan.bound.gap >= 0) {
      char gap[32];
      std::snprintf(gap, sizeof gap, ", gap %.1f %%", 100 * plan.bound.gap);
      out << gap;
    }
    out << '\n';
  }
  out << '\n';
  print_account(out, plan);
  if (trace != nullptr) {
    print_dropped(out, plan, *trace);
    return;
  }
  out << "\ndropped: " << plan.decisions.size() << " storages";
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    out << (i == 0 ? ": " : i % 16 == 0 ? ",\n  " : ", ") << plan.decisions[i].storage;
  }
  out << "\n  (sizes and times: add --trace TRACE)\n";
}

}  // namespace lowtide::cli
