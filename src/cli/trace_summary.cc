#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/summary.h"
#include "cli/text_table.h"
#include "cli/trace_facts.h"
#include "core/bytes.h"

namespace lowtide::cli {
namespace {

constexpr size_t kFactRows = 8;

void print_head(std::ostream& out, const Trace& trace, const TraceFacts& facts) {
  const TraceSettings& s = trace.settings;
  out << "trace of " << (s.name.empty() ? "a program without a name" : printable(s.name))
      << ", fingerprint " << fingerprint_text(trace.fingerprint()) << '\n';
  out << "  device      " << printable(s.device) << ", torch " << printable(s.torch_version) << ", "
      << s.intra_op_threads << (s.intra_op_threads == 1 ? " thread" : " threads") << ", clock "
      << printable(s.clock) << ", " << s.probe_steps << " probe steps, lowtide "
      << printable(s.lowtide_version) << '\n';
  out << "  step        " << format_duration(trace.step_ns) << ", of which ops "
      << format_duration(facts.time_ns) << " (" << percent(facts.time_ns, trace.step_ns) << ")";
  if (trace.watch_ns > 0) out << "; watching adds " << format_duration(trace.watch_ns);
  out << '\n';
  out << "  ops         " << trace.ops.size() << ": " << facts.ops_by_phase[0] << " forward, "
      << facts.ops_by_phase[1] << " backward, " << facts.ops_by_phase[2] << " optimizer, "
      << facts.ops_by_phase[3] << " other";
  if (facts.unmeasured_ops > 0) out << "; " << facts.unmeasured_ops << " not measured";
  out << '\n';
}

void print_memory(std::ostream& out, const Trace& trace, const TraceFacts& facts) {
  const TracePeaks& p = trace.peaks;
  out << "  peak        " << format_bytes(p.requested_bytes) << " requested, "
      << format_bytes(p.rounded_bytes) << " rounded, " << format_bytes(p.reserved_bytes)
      << " reserved (" << (p.measured ? "measured" : "derived: the plain step did not run")
      << ")\n";
  out << "  resident    " << format_bytes(facts.resident_bytes);
  if (trace.outside_bytes > 0) out << ", outside " << format_bytes(trace.outside_bytes);
  out << '\n';
  out << "  saved       " << format_bytes(facts.saved_bytes) << " in " << facts.saved_storages
      << " storages for backward; " << format_bytes(facts.droppable_bytes) << " in "
      << facts.droppable_storages << " may be dropped\n";
  const TraceQuality& q = trace.quality;
  if (q.dropped_records > 0 || q.zero_stamped_records > 0 || q.unattributed_share > 0.05) {
    char share[32];
    std::snprintf(share, sizeof share, "%.1f %%", 100 * q.unattributed_share);
    out << "  quality     " << q.dropped_records << " records dropped, " << q.zero_stamped_records
        << " without a time, " << share << " of the step not attributed to an op\n";
  }
}

}  // namespace

void print_trace(std::ostream& out, const Trace& trace) {
  const TraceFacts facts = facts_of(trace);
  print_head(out, trace, facts);
  print_memory(out, trace, facts);

  out << "\nbiggest holders at the peak (" << format_bytes(facts.peak_requested_bytes)
      << " requested)\n";
  TextTable holders({"storage", "size", "recipe", "may be dropped", "what it is"}, true);
  for (size_t i = 0; i < std::min(kFactRows, facts.live_at_peak.size()); ++i) {
    const StorageId id = facts.live_at_peak[i];
    const TraceStorage& storage = trace.storages[static_cast<size_t>(id)];
    holders.add({std::to_string(id), format_bytes(storage.bytes),
                 storage.recomputable ? format_duration(recipe_ns(trace, id)) : "-",
                 storage.recomputable ? "yes" : "no", origin_of(trace, id)});
  }
  holders.print(out);

  out << "\nslowest ops\n";
  TextTable slowest({"op", "calls", "time", "of the ops"});
  for (size_t i = 0; i < std::min(kFactRows, facts.slowest.size()); ++i) {
    const OpGroup& group = facts.slowest[i];
    slowest.add({printable(group.name), std::to_string(group.count), format_duration(group.time_ns),
                 percent(group.time_ns, facts.time_ns)});
  }
  slowest.print(out);

  if (facts.kept.empty()) return;
  out << "\nsaved and cannot be dropped\n";
  TextTable kept({"reason", "storages", "size"});
  for (size_t i = 0; i < std::min(kFactRows, facts.kept.size()); ++i) {
    const KeepGroup& group = facts.kept[i];
    kept.add({printable(group.reason, 60), std::to_string(group.count), format_bytes(group.bytes)});
  }
  kept.print(out);
}

std::string trace_summary_json(const Trace& trace) {
  using Json = nlohmann::ordered_json;
  const TraceFacts facts = facts_of(trace);
  Json json = {{"kind", "trace"},
               {"name", trace.settings.name},
               {"fingerprint", fingerprint_text(trace.fingerprint())},
               {"device", trace.settings.device},
               {"torch_version", trace.settings.torch_version},
               {"step_ns", trace.step_ns},
               {"watch_ns", trace.watch_ns},
               {"ops", trace.ops.size()},
               {"ops_ns", facts.time_ns},
               {"unmeasured_ops", facts.unmeasured_ops},
               {"storages", trace.storages.size()},
               {"saves", trace.saves.size()},
               {"events", trace.events.size()},
               {"peak_requested_bytes", trace.peaks.requested_bytes},
               {"peak_rounded_bytes", trace.peaks.rounded_bytes},
               {"peak_reserved_bytes", trace.peaks.reserved_bytes},
               {"peak_measured", trace.peaks.measured},
               {"derived_peak_requested_bytes", facts.peak_requested_bytes},
               {"resident_bytes", facts.resident_bytes},
               {"outside_bytes", trace.outside_bytes},
               {"saved_storages", facts.saved_storages},
               {"saved_bytes", facts.saved_bytes},
               {"droppable_storages", facts.droppable_storages},
               {"droppable_bytes", facts.droppable_bytes},
               {"live_at_peak", Json::array()},
               {"slowest", Json::array()},
               {"kept", Json::array()}};
  for (const StorageId id : facts.live_at_peak) {
    const TraceStorage& storage = trace.storages[static_cast<size_t>(id)];
    json["live_at_peak"].push_back({{"storage", id},
                                    {"bytes", storage.bytes},
                                    {"kind", to_string(storage.kind)},
                                    {"recomputable", storage.recomputable},
                                    {"recipe_ns", recipe_ns(trace, id)}});
  }
  for (const OpGroup& g : facts.slowest) {
    json["slowest"].push_back({{"name", g.name}, {"count", g.count}, {"time_ns", g.time_ns}});
  }
  for (const KeepGroup& g : facts.kept) {
    json["kept"].push_back({{"reason", g.reason}, {"storages", g.count}, {"bytes", g.bytes}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lowtide::cli
