#include <new>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_writer.h"
#include "core/trace_file.h"

namespace lowtide {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPhases = static_cast<int>(Phase::other) + 1;
constexpr int kStorageKinds = static_cast<int>(StorageKind::other) + 1;
constexpr int kExecutions = static_cast<int>(Execution::joint) + 1;
constexpr int kEventKinds = static_cast<int>(EventKind::release) + 1;

struct FlagName {
  const char* name;
  bool OpFlags::* flag;
};
constexpr FlagName kFlags[] = {
    {"random", &OpFlags::random}, {"mutates", &OpFlags::mutates},
    {"opaque", &OpFlags::opaque}, {"collective", &OpFlags::collective},
    {"effect", &OpFlags::effect}, {"data_dependent", &OpFlags::data_dependent},
};

// Names from outside may hold bytes that are not UTF-8; they are replaced, never an exception.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json id_json(int32_t id) { return id == kNone ? Json(nullptr) : Json(id); }

Json settings_json(const TraceSettings& s) {
  return {{"name", s.name},
          {"device", s.device},
          {"torch_version", s.torch_version},
          {"lowtide_version", s.lowtide_version},
          {"clock", s.clock},
          {"intra_op_threads", s.intra_op_threads},
          {"probe_steps", s.probe_steps},
          {"deterministic", s.deterministic}};
}

Json peaks_json(const TracePeaks& p) {
  return {{"requested_bytes", p.requested_bytes},
          {"rounded_bytes", p.rounded_bytes},
          {"reserved_bytes", p.reserved_bytes},
          {"device_total_bytes", p.device_total_bytes},
          {"measured", p.measured}};
}

Json quality_json(const TraceQuality& q) {
  return {{"dropped_records", q.dropped_records},
          {"zero_stamped_records", q.zero_stamped_records},
          {"unattributed_share", q.unattributed_share},
          {"clock_drift_ns", q.clock_drift_ns}};
}

Json op_json(const TraceOp& op) {
  Json flags = Json::array(), inputs = Json::array();
  for (const FlagName& f : kFlags) {
    if (op.flags.*f.flag) flags.push_back(f.name);
  }
  for (const StorageRef& input : op.inputs) {
    inputs.push_back(Json::array({input.storage, input.version}));
  }
  return {{"name", op.name},
          {"phase", to_string(op.phase)},
          {"graph", op.graph},
          {"host_ns", op.host_ns},
          {"device_ns", op.device_ns},
          {"samples", op.samples},
          {"iqr_ns", op.iqr_ns},
          {"replay_ns", op.replay_ns},
          {"workspace_bytes", op.workspace_bytes},
          {"flops", op.flops},
          {"key", fingerprint_text(op.key)},
          {"shape_key", fingerprint_text(op.shape_key)},
          {"flags", std::move(flags)},
          {"inputs", std::move(inputs)},
          {"outputs", op.outputs},
          {"writes", op.writes}};
}

Json storage_json(const TraceStorage& s) {
  return {
      {"bytes", s.bytes},       {"rounded_bytes", s.rounded_bytes}, {"kind", to_string(s.kind)},
      {"resident", s.resident}, {"recomputable", s.recomputable},   {"keep_reason", s.keep_reason},
      {"writers", s.writers}};
}

Json save_json(const TraceSave& s) {
  return {{"storage", s.storage},
          {"version", s.version},
          {"packed_by", id_json(s.packed_by)},
          {"first_unpack", id_json(s.first_unpack)},
          {"last_unpack", id_json(s.last_unpack)},
          {"unpack_order", id_json(s.unpack_order)},
          {"evicted_in_probe", s.evicted_in_probe}};
}

TraceSettings read_settings(const JsonNode& node) {
  TraceSettings s;
  s.name = node.field("name").text();
  s.device = node.field("device").text();
  s.torch_version = node.field("torch_version").text();
  s.lowtide_version = node.field("lowtide_version").text();
  s.clock = node.field("clock").text();
  s.intra_op_threads = node.field("intra_op_threads").integer32();
  s.probe_steps = node.field("probe_steps").integer32();
  s.deterministic = node.field("deterministic").boolean();
  return s;
}

TracePeaks read_peaks(const JsonNode& node) {
  TracePeaks p;
  p.requested_bytes = node.field("requested_bytes").integer();
  p.rounded_bytes = node.field("rounded_bytes").integer();
  p.reserved_bytes = node.field("reserved_bytes").integer();
  p.device_total_bytes = node.field("device_total_bytes").integer();
  p.measured = node.field("measured").boolean();
  return p;
}

TraceQuality read_quality(const JsonNode& node) {
  TraceQuality q;
  q.dropped_records = node.field("dropped_records").integer();
  q.zero_stamped_records = node.field("zero_stamped_records").integer();
  q.unattributed_share = node.field("unattributed_share").number();
  q.clock_drift_ns = node.field("clock_drift_ns").integer(INT64_MIN);
  return q;
}

OpFlags read_flags(const JsonNode& node) {
  OpFlags flags;
  for (size_t i = 0; i < node.size(); ++i) {
    const std::string_view name = node.at(i).text();
    bool known = false;
    for (const FlagName& f : kFlags) {
      if (name != f.name) continue;
      flags.*f.flag = true;
      known = true;
    }
    if (!known) node.at(i).fail("is not a flag of this version");
  }
  return flags;
}

std::vector<int32_t> read_ids(const JsonNode& node) {
  std::vector<int32_t> ids;
  ids.reserve(node.size());
  for (size_t i = 0; i < node.size(); ++i) ids.push_back(node.at(i).integer32());
  return ids;
}

TraceOp read_op(const JsonNode& node) {
  TraceOp op;
  op.name = node.field("name").text();
  op.phase = node.field("phase").one_of<Phase>(kPhases);
  op.graph = node.field("graph").integer32();
  op.host_ns = node.field("host_ns").integer();
  op.device_ns = node.field("device_ns").integer();
  op.samples = node.field("samples").integer32();
  op.iqr_ns = node.field("iqr_ns").integer();
  op.replay_ns = node.field("replay_ns").integer();
  op.workspace_bytes = node.field("workspace_bytes").integer();
  if (node.has("flops")) op.flops = node.field("flops").integer();
  op.key = node.field("key").hash();
  op.shape_key = node.field("shape_key").hash();
  op.flags = read_flags(node.field("flags"));
  const JsonNode inputs = node.field("inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    op.inputs.push_back({inputs.at(i).at(0).integer32(), inputs.at(i).at(1).integer32()});
  }
  op.outputs = read_ids(node.field("outputs"));
  op.writes = read_ids(node.field("writes"));
  return op;
}

TraceStorage read_storage(const JsonNode& node) {
  TraceStorage s;
  s.bytes = node.field("bytes").integer();
  s.rounded_bytes = node.field("rounded_bytes").integer();
  s.kind = node.field("kind").one_of<StorageKind>(kStorageKinds);
  s.resident = node.field("resident").boolean();
  s.recomputable = node.field("recomputable").boolean();
  s.keep_reason = node.field("keep_reason").text();
  s.writers = read_ids(node.field("writers"));
  return s;
}

TraceSave read_save(const JsonNode& node) {
  TraceSave s;
  s.storage = node.field("storage").integer32();
  s.version = node.field("version").integer32();
  s.packed_by = node.field("packed_by").id_or_null();
  s.first_unpack = node.field("first_unpack").id_or_null();
  s.last_unpack = node.field("last_unpack").id_or_null();
  s.unpack_order = node.field("unpack_order").id_or_null();
  s.evicted_in_probe = node.field("evicted_in_probe").boolean();
  return s;
}

TraceEvent read_event(const JsonNode& node) {
  return {node.at(0).one_of<EventKind>(kEventKinds), node.at(1).integer32()};
}

TraceBlock read_block(const JsonNode& node) {
  return {node.at(0).integer32(), node.at(1).integer32()};
}

template <typename T, typename Read>
void read_list(const JsonNode& node, std::vector<T>& list, Read read) {
  list.reserve(node.size());
  for (size_t i = 0; i < node.size(); ++i) list.push_back(read(node.at(i)));
}

Trace read_root(const JsonDocument& document) {
  const JsonNode root = document.root(kTraceFormatVersion);
  Trace trace;
  trace.settings = read_settings(root.field("settings"));
  if (root.has("execution")) {
    trace.execution = root.field("execution").one_of<Execution>(kExecutions);
  }
  trace.step_ns = root.field("step_ns").integer();
  if (root.has("watch_ns")) trace.watch_ns = root.field("watch_ns").integer();
  trace.exchange_ns = root.field("exchange_ns").integer();
  trace.outside_bytes = root.field("outside_bytes").integer();
  trace.peaks = read_peaks(root.field("peaks"));
  trace.quality = read_quality(root.field("quality"));
  read_list(root.field("ops"), trace.ops, read_op);
  read_list(root.field("storages"), trace.storages, read_storage);
  read_list(root.field("saves"), trace.saves, read_save);
  read_list(root.field("events"), trace.events, read_event);
  if (root.has("blocks")) read_list(root.field("blocks"), trace.blocks, read_block);
  try {
    trace.validate();
  } catch (const FileError& error) {
    throw FileError("trace file '" + document.origin() + "': " + error.message());
  }
  const JsonNode stored = root.field("fingerprint");
  if (stored.hash() != trace.fingerprint()) {
    stored.fail("does not belong to the settings and keys in the file, which give \"" +
                fingerprint_text(trace.fingerprint()) + "\": it was edited or damaged");
  }
  return trace;
}

}  // namespace

std::string trace_to_json(const Trace& trace) {
  JsonWriter writer("lowtide.trace", kTraceFormatVersion);
  writer.member("fingerprint", dump(fingerprint_text(trace.fingerprint())));
  writer.member("settings", dump(settings_json(trace.settings)));
  writer.member("execution", dump(to_string(trace.execution)));
  writer.member("step_ns", std::to_string(trace.step_ns));
  writer.member("watch_ns", std::to_string(trace.watch_ns));
  writer.member("exchange_ns", std::to_string(trace.exchange_ns));
  writer.member("outside_bytes", std::to_string(trace.outside_bytes));
  writer.member("peaks", dump(peaks_json(trace.peaks)));
  writer.member("quality", dump(quality_json(trace.quality)));
  writer.begin_list("ops");
  for (const TraceOp& op : trace.ops) writer.entry(dump(op_json(op)));
  writer.end_list();
  writer.begin_list("storages");
  for (const TraceStorage& storage : trace.storages) writer.entry(dump(storage_json(storage)));
  writer.end_list();
  writer.begin_list("saves");
  for (const TraceSave& save : trace.saves) writer.entry(dump(save_json(save)));
  writer.end_list();
  writer.begin_list("events", 8);
  for (const TraceEvent& event : trace.events) {
    writer.entry("[\"" + std::string(to_string(event.kind)) + "\"," + std::to_string(event.id) +
                 "]");
  }
  writer.end_list();
  writer.begin_list("blocks", 8);
  for (const TraceBlock& block : trace.blocks) {
    writer.entry("[" + std::to_string(block.begin) + "," + std::to_string(block.end) + "]");
  }
  writer.end_list();
  return std::move(writer).finish();
}

Trace trace_from_json(std::string_view text, std::string_view origin) {
  try {
    return read_root(JsonDocument(text, "trace", origin));
  } catch (const std::bad_alloc&) {
    throw FileError("trace '" + std::string(origin) +
                    "' needs more memory than there is. Fix: free memory and try again");
  }
}

void write_trace(const Trace& trace, const std::filesystem::path& path) {
  trace.validate();  // a file that no reader accepts helps nobody
  write_whole_file(path, trace_to_json(trace));
}

Trace read_trace(const std::filesystem::path& path) {
  return trace_from_json(read_whole_file(path), path.string());
}

}  // namespace lowtide
