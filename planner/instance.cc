#include "planner/instance.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/index.h"
#include "core/json_reader.h"
#include "core/trace_file.h"
#include "planner/joint_graph.h"
#include "planner/op_kind.h"
#include "planner/simulator.h"

namespace lowtide::planner {
namespace {

constexpr int kInstanceVersion = 1;
constexpr int64_t kMaxValue = int64_t{1} << 56;  // of one size or time, as in a trace

class InstanceReader {
 public:
  explicit InstanceReader(const JsonDocument& document) : root_(document.root()) {}

  Trace read() {
    const JsonNode format = root_.field("format");
    if (format.text() != "remat-instance") format.fail("must be \"remat-instance\"");
    const JsonNode version = root_.field("version");
    if (version.integer() != kInstanceVersion) version.fail("is unknown: version 1 is read");
    read_tensors();
    read_ops(root_.field("forward"), Phase::forward);
    read_ops(root_.field("backward"), Phase::backward);
    read_outputs("gradient_outputs", Phase::backward);
    read_outputs("forward_outputs", Phase::forward);
    read_saves();
    find_uses();
    write_events();
    trace_.settings.name = "instance";
    trace_.settings.device = "instance";
    trace_.settings.clock = "instance";
    return std::move(trace_);
  }

 private:
  void read_tensors() {
    trace_.execution = Execution::joint;
    const JsonNode tensors = root_.field("tensors");
    for (size_t i = 0; i < tensors.size(); ++i) {
      TraceStorage storage;
      const int64_t bytes = tensors.at(i).field("bytes").integer(0, kMaxValue);
      if (tensors.at(i).field("input").boolean()) {
        storage.kind = StorageKind::input;
        storage.resident = true;
      } else {
        storage.bytes = storage.rounded_bytes = bytes;
      }
      trace_.storages.push_back(std::move(storage));
    }
    lasts_.resize(tensors.size());
    saved_.resize(tensors.size());
    last_use_.resize(tensors.size(), kNone);
    first_backward_use_.resize(tensors.size(), kNone);
    last_backward_use_.resize(tensors.size(), kNone);
  }

  StorageId tensor(const JsonNode& node) const {
    const int32_t id = node.integer32();
    if (at(id) >= trace_.storages.size()) node.fail("is not a tensor of this instance");
    return id;
  }

  void read_ops(const JsonNode& ops, Phase phase) {
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto id = static_cast<OpId>(trace_.ops.size());
      const JsonNode node = ops.at(i);
      TraceOp op;
      op.name = node.field("name").text();
      if (op.name.empty()) node.field("name").fail("is empty");
      op.phase = phase;
      op.device_ns = node.field("time_ns").integer(0, kMaxValue);
      Hasher key;
      Hasher shape;
      key.add(op_kind(op.name)).add(phase);
      const JsonNode inputs = node.field("inputs");
      for (size_t k = 0; k < inputs.size(); ++k) {
        const StorageId s = tensor(inputs.at(k));
        const TraceStorage& storage = trace_.storages[at(s)];
        if (storage.writers.empty() && !storage.resident) {
          inputs.at(k).fail("is read before an op has made it, and is no input");
        }
        const StorageRef ref{s, storage.resident ? 0 : 1};
        if (std::find(op.inputs.begin(), op.inputs.end(), ref) == op.inputs.end()) {
          op.inputs.push_back(ref);
        }
        shape.add(storage.bytes);
      }
      const JsonNode outputs = node.field("outputs");
      for (size_t k = 0; k < outputs.size(); ++k) {
        const StorageId s = tensor(outputs.at(k));
        TraceStorage& storage = trace_.storages[at(s)];
        if (storage.resident) outputs.at(k).fail("is an input and cannot be made by an op");
        if (!storage.writers.empty()) outputs.at(k).fail("is made by two ops");
        storage.writers = {id};
        if (phase == Phase::backward) storage.kind = StorageKind::gradient;
        op.outputs.push_back(s);
        shape.add(storage.bytes);
      }
      op.key = key.add(op.inputs.size()).add(op.outputs.size()).value();
      op.shape_key = shape.value();
      trace_.ops.push_back(std::move(op));
    }
  }

  void read_outputs(const char* list, Phase phase) {
    const JsonNode outputs = root_.field(list);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const StorageId s = tensor(outputs.at(i));
      const TraceStorage& storage = trace_.storages[at(s)];
      if (storage.resident) continue;
      if (!made_by(storage, phase)) outputs.at(i).fail("is made by no op of its part");
      lasts_[at(s)] = 1;
    }
  }

  [[nodiscard]] bool made_by(const TraceStorage& storage, Phase phase) const {
    return !storage.writers.empty() && trace_.ops[at(storage.writers.front())].phase == phase;
  }

  void read_saves() {
    const JsonNode saves = root_.field("saves");
    for (size_t i = 0; i < saves.size(); ++i) {
      const StorageId s = tensor(saves.at(i));
      TraceStorage& storage = trace_.storages[at(s)];
      if (storage.resident) continue;  // an input is there anyway
      if (!made_by(storage, Phase::forward)) saves.at(i).fail("is made by no forward op");
      if (saved_[at(s)] != 0) saves.at(i).fail("is listed twice");
      saved_[at(s)] = 1;
      if (lasts_[at(s)] != 0) storage.keep_reason = "output of the forward";
    }
    for (size_t s = 0; s < trace_.storages.size(); ++s) {
      TraceStorage& storage = trace_.storages[s];
      storage.recomputable = made_by(storage, Phase::forward) && lasts_[s] == 0;
    }
  }

  // In the plan that keeps every save.
  void find_uses() {
    for (OpId o = 0; at(o) < trace_.ops.size(); ++o) {
      const TraceOp& op = trace_.ops[at(o)];
      for (const StorageId s : op.outputs) last_use_[at(s)] = o;
      for (const StorageRef& ref : op.inputs) {
        const size_t s = at(ref.storage);
        const bool backward = op.phase == Phase::backward;
        // The backward's own copy of what is not saved is not the trace's storage.
        if (!backward || saved_[s] != 0 || !trace_.storages[s].recomputable) last_use_[s] = o;
        if (backward && first_backward_use_[s] == kNone) first_backward_use_[s] = o;
        if (backward) last_backward_use_[s] = o;
      }
    }
  }

  void write_events() {
    std::vector<std::vector<StorageId>> dying(trace_.ops.size());
    std::vector<std::vector<SaveId>> unpacked(trace_.ops.size());
    std::vector<SaveId> save_of(trace_.storages.size(), kNone);
    for (size_t s = 0; s < trace_.storages.size(); ++s) {
      if (!trace_.storages[s].writers.empty()) {
        dying[at(last_use_[s])].push_back(static_cast<StorageId>(s));
      }
      if (saved_[s] == 0) continue;
      TraceSave save;
      save.storage = static_cast<StorageId>(s);
      save.version = 1;
      save.packed_by = trace_.storages[s].writers.front();
      save.first_unpack = first_backward_use_[s];
      save.last_unpack = last_backward_use_[s];
      save_of[s] = static_cast<SaveId>(trace_.saves.size());
      if (save.first_unpack != kNone) unpacked[at(save.first_unpack)].push_back(save_of[s]);
      trace_.saves.push_back(std::move(save));
    }
    int32_t unpacks = 0;
    const auto event = [&](EventKind kind, int32_t id) { trace_.events.push_back({kind, id}); };
    for (OpId o = 0; at(o) < trace_.ops.size(); ++o) {
      const TraceOp& op = trace_.ops[at(o)];
      for (const SaveId save : unpacked[at(o)]) {
        trace_.saves[at(save)].unpack_order = unpacks++;
        event(EventKind::unpack, save);
      }
      event(EventKind::op_begin, o);
      for (const StorageId s : op.outputs) event(EventKind::alloc, s);
      event(EventKind::op_end, o);
      for (const StorageId s : op.outputs) {
        if (save_of[at(s)] != kNone) event(EventKind::pack, save_of[at(s)]);
      }
      for (const StorageId s : dying[at(o)]) {
        if (save_of[at(s)] != kNone) event(EventKind::drop_save, save_of[at(s)]);
        if (lasts_[at(s)] == 0) event(EventKind::free, s);
      }
    }
  }

  JsonNode root_;
  Trace trace_;
  std::vector<char> lasts_, saved_;
  std::vector<OpId> last_use_, first_backward_use_, last_backward_use_;
};

}  // namespace

Trace instance_from_json(std::string_view text, std::string_view origin) {
  try {
    Trace trace = InstanceReader(JsonDocument(text, "instance", origin)).read();
    try {
      trace.validate();
    } catch (const FileError& error) {
      throw FileError("instance '" + std::string(origin) + "': " + error.message());
    }
    // Step and peaks of the plan that keeps every save: there is nothing measured to copy.
    const Simulator simulator(trace);
    trace.step_ns = simulator.joint_graph()->plain_ns();
    const SimulationResult plain = simulator.simulate(DecisionTable(trace.storages.size()));
    trace.peaks.requested_bytes = plain.peak_requested_bytes;
    trace.peaks.rounded_bytes = trace.peaks.reserved_bytes = plain.peak_rounded_bytes;
    return trace;
  } catch (const std::bad_alloc&) {
    throw FileError("instance '" + std::string(origin) +
                    "' needs more memory than there is. Fix: free memory and try again");
  }
}

Trace read_instance(const std::filesystem::path& path) {
  Trace trace = instance_from_json(read_whole_file(path), path.string());
  trace.settings.name = path.stem().string();
  return trace;
}

Trace read_problem(const std::filesystem::path& path) {
  return file_kind(path) == FileKind::instance ? read_instance(path) : read_trace(path);
}

}  // namespace lowtide::planner
