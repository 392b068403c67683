// What a session says: its phase lines, the account of a failed allocation, the closing screen, the
// JSON line.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/bytes.h"
#include "runtime/session_impl.h"

namespace lowtide::runtime {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void row(std::ostringstream& out, const char* label, const std::string& value) {
  char head[32];
  std::snprintf(head, sizeof head, "  %-22s", label);
  out << head << value << '\n';
}

}  // namespace

std::string SessionImpl::report() const {
  std::ostringstream out;
  out << "lowtide " << options_.name << ": ";
  if (disabled_) {
    out << "disabled (LOWTIDE_DISABLE)\n";
    return out.str();
  }
  out << stats_.steps << " steps, phase " << to_string(phase_) << '\n';
  row(out, "budget", budget_ == hooks::TrainingMemory::kNoLimit ? "none" : format_bytes(budget_));
  if (variants_.empty() || !current().plan().has_value()) {
    row(out, "peak so far", format_bytes(stats_.peak_reserved_bytes) + " reserved");
    return out.str();
  }
  const Trace& trace = current().trace();
  const Plan& plan = *current().plan();
  const bool measured = trace.peaks.measured;
  row(out, "peak before",
      format_bytes(measured ? trace.peaks.reserved_bytes : trace.peaks.rounded_bytes) +
          (measured ? " reserved" : " (derived: the plain step did not fit)"));
  row(out, "peak now",
      format_bytes(stats_.enforce_peak_reserved_bytes) + " reserved (predicted " +
          format_bytes(plan.predicted.peak_reserved_bytes) + "); over budget in " +
          std::to_string(stats_.steps_over_budget) + " steps");
  row(out, "step before", format_duration(trace.step_ns));
  const double slower =
      trace.step_ns > 0
          ? static_cast<double>(plan.predicted.step_ns) / static_cast<double>(trace.step_ns) - 1
          : 0;
  row(out, "step now",
      format_duration(last_step_.step_ns) + " (predicted " +
          format_duration(plan.predicted.step_ns) + ", +" + percent(slower) + ")");
  std::map<std::string, std::pair<int, int64_t>> by_op;
  int64_t dropped = 0;
  for (const Decision& decision : plan.decisions) {
    const TraceStorage& storage = trace.storages[static_cast<size_t>(decision.storage)];
    const std::string& op = trace.ops[static_cast<size_t>(storage.writers.back())].name;
    by_op[op].first += 1;
    by_op[op].second += storage.bytes;
    dropped += storage.bytes;
  }
  row(out, "dropped",
      std::to_string(plan.decisions.size()) + " storages, " + format_bytes(dropped));
  std::vector<std::pair<std::string, std::pair<int, int64_t>>> largest(by_op.begin(), by_op.end());
  std::sort(largest.begin(), largest.end(),
            [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  for (size_t i = 0; i < std::min<size_t>(4, largest.size()); ++i) {
    row(out, "",
        format_bytes(largest[i].second.second) + "  " + std::to_string(largest[i].second.first) +
            " x " + largest[i].first);
  }
  row(out, "checked",
      std::to_string(stats_.verified) +
          (memory_->has_values()
               ? " recomputed and compared, " + std::to_string(stats_.mismatched) + " differ"
               : " recomputed; values not verified (double)"));
  const Bound& bound = plan.bound;
  row(out, "bound and gap",
      bound.lower_bound_ns < 0
          ? "none"
          : format_duration(bound.lower_bound_ns) + ", " +
                (bound.gap < 0 ? "no gap to state" : percent(bound.gap)) + ", " + bound.space);
  if (stats_.divergences + stats_.evictions + stats_.rescues > 0) {
    row(out, "events",
        std::to_string(stats_.divergences) + " divergences, " + std::to_string(stats_.evictions) +
            " evictions, " + std::to_string(stats_.rescues) + " rescues");
  }
  if (stats_.dropping_stopped) {
    row(out, "canary", stats_.stop_reason);
  }
  if (options_.store) {
    row(out, "files", store_.trace_path(current().fingerprint()).string());
    row(out, "", store_.plan_path(current().fingerprint()).string());
  }
  return out.str();
}

std::string SessionImpl::stats_json() const {
  nlohmann::ordered_json line;
  line["step"] = last_step_.index;
  line["phase"] = to_string(last_step_.phase);
  line["budget_bytes"] = budget_;
  line["peak_requested_bytes"] = last_step_.peak_requested_bytes;
  line["peak_rounded_bytes"] = last_step_.peak_rounded_bytes;
  line["peak_reserved_bytes"] = last_step_.peak_reserved_bytes;
  line["step_ns"] = last_step_.step_ns;
  const std::optional<Plan> chosen = plan();
  line["predicted_step_ns"] = chosen.has_value() ? chosen->predicted.step_ns : 0;
  line["recompute_ns"] = last_step_.recompute_ns;
  line["replayed_ops"] = last_step_.replayed_ops;
  line["evictions"] = last_step_.evictions;
  line["diverged"] = last_step_.diverged;
  line["rescues"] = stats_.rescues;
  line["divergences"] = stats_.divergences;
  line["variants"] = stats_.variants;
  return line.dump();
}

void SessionImpl::say(const std::string& line) const {
  if (options_.verbose) {
    std::fprintf(stderr, "lowtide: %s\n", line.c_str());
  }
}

std::string SessionImpl::account_text() {
  std::string text =
      "Lowtide budget " +
      (budget_ == hooks::TrainingMemory::kNoLimit ? std::string("none") : format_bytes(budget_)) +
      ", phase " + to_string(phase_);
  if (!variants_.empty() && current().plan().has_value()) {
    text += ", plan predicted " + format_bytes(current().plan()->predicted.peak_reserved_bytes);
  }
  return text + ", evicted in this step " + format_bytes(runtime_->counters.evicted_bytes) +
         "; nothing is left to evict. Fix: a larger budget or a smaller batch";
}

}  // namespace lowtide::runtime
