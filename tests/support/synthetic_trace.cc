#include "support/synthetic_trace.h"

#include <algorithm>
#include <utility>

#include "core/index.h"

namespace lowtide::testing {
namespace {

constexpr int64_t kRounding = 512;

}  // namespace

TraceBuilder::TraceBuilder(std::string name) {
  trace_.settings.name = std::move(name);
  trace_.settings.device = "cpu";
  trace_.settings.torch_version = "synthetic";
  trace_.settings.lowtide_version = "synthetic";
  trace_.settings.clock = "thread_cpu";
  trace_.settings.probe_steps = 1;
}

StorageId TraceBuilder::add_storage(int64_t bytes, StorageKind kind) {
  TraceStorage storage;
  storage.bytes = bytes;
  storage.rounded_bytes = (bytes + kRounding - 1) / kRounding * kRounding;
  storage.kind = kind;
  trace_.storages.push_back(storage);
  alive_.push_back(0);
  reasons_.emplace_back();
  return static_cast<StorageId>(trace_.storages.size()) - 1;
}

void TraceBuilder::event(EventKind kind, int32_t id) { trace_.events.push_back({kind, id}); }

StorageId TraceBuilder::resident(int64_t bytes, StorageKind kind) {
  const StorageId id = add_storage(bytes, kind);
  trace_.storages.back().resident = true;
  alive_[at(id)] = 1;
  return id;
}

std::vector<StorageId> TraceBuilder::op(const SyntheticOp& spec) {
  const auto op_id = static_cast<OpId>(trace_.ops.size());
  TraceOp op;
  op.name = spec.name;
  op.phase = spec.phase;
  op.host_ns = spec.ns;
  op.samples = 1;
  op.key = std::hash<std::string>{}(spec.name) * 31 + static_cast<uint64_t>(op_id);
  op.flags.mutates = !spec.writes.empty();
  const auto read = [&](StorageId storage) {
    const StorageRef ref{storage,
                         static_cast<int32_t>(trace_.storages[at(storage)].writers.size())};
    if (std::find(op.inputs.begin(), op.inputs.end(), ref) == op.inputs.end()) {
      op.inputs.push_back(ref);
    }
  };
  for (const StorageId storage : spec.reads) read(storage);
  if (!spec.overwrites) {
    for (const StorageId storage : spec.writes) read(storage);
  }

  event(EventKind::op_begin, op_id);
  std::vector<StorageId> temporaries;
  for (const int64_t bytes : spec.temporaries) {
    temporaries.push_back(add_storage(bytes, StorageKind::temporary));
    alive_.back() = 1;
    event(EventKind::alloc, temporaries.back());
    op.workspace_bytes += bytes;
  }
  for (const int64_t bytes : spec.creates) {
    op.outputs.push_back(add_storage(bytes, spec.kind));
    trace_.storages.back().writers = {op_id};
    alive_.back() = 1;
    event(EventKind::alloc, op.outputs.back());
  }
  for (const StorageId storage : temporaries) free(storage);
  event(EventKind::op_end, op_id);
  op.writes = spec.writes;
  for (const StorageId storage : spec.writes) {
    // Writes to what the step did not create need no recipe: it is external, as found.
    auto& writers = trace_.storages[at(storage)].writers;
    if (!writers.empty()) writers.push_back(op_id);
  }
  trace_.step_ns += spec.ns;
  std::vector<StorageId> outputs = op.outputs;
  trace_.ops.push_back(std::move(op));
  return outputs;
}

StorageId TraceBuilder::op1(const SyntheticOp& spec) { return op(spec).at(0); }

SaveId TraceBuilder::pack(StorageId storage) {
  TraceSave save;
  save.storage = storage;
  save.version = static_cast<int32_t>(trace_.storages[at(storage)].writers.size());
  save.packed_by = static_cast<OpId>(trace_.ops.size()) - 1;
  trace_.saves.push_back(save);
  const auto id = static_cast<SaveId>(trace_.saves.size()) - 1;
  event(EventKind::pack, id);
  return id;
}

void TraceBuilder::unpack(SaveId id) {
  TraceSave& save = trace_.saves[at(id)];
  const auto count = static_cast<OpId>(trace_.ops.size());
  if (save.first_unpack == kNone) {
    save.first_unpack = count;
    save.unpack_order = unpacks_++;
  }
  save.last_unpack = count;
  event(EventKind::unpack, id);
}

void TraceBuilder::drop_save(SaveId save) { event(EventKind::drop_save, save); }
void TraceBuilder::release(StorageId storage) { event(EventKind::release, storage); }

void TraceBuilder::free(StorageId storage) {
  alive_[at(storage)] = 0;
  event(EventKind::free, storage);
}

void TraceBuilder::never_drop(StorageId storage, std::string reason) {
  reasons_[at(storage)] = std::move(reason);
}

Trace TraceBuilder::finish() {
  for (size_t s = 0; s < trace_.storages.size(); ++s) {
    TraceStorage& storage = trace_.storages[s];
    storage.keep_reason = reasons_[s];
    storage.recomputable =
        reasons_[s].empty() && !storage.writers.empty() && storage.kind == StorageKind::activation;
  }
  for (const TraceSave& save : trace_.saves) {
    TraceStorage& storage = trace_.storages[at(save.storage)];
    if (save.version != static_cast<int32_t>(storage.writers.size())) {
      storage.recomputable = false;
      storage.keep_reason = "written after it was saved";
    } else if (!storage.recomputable && storage.keep_reason.empty()) {
      storage.keep_reason = "external";
    }
  }
  int64_t requested = 0;
  int64_t rounded = 0;
  for (const TraceStorage& storage : trace_.storages) {
    if (storage.resident) requested += storage.bytes, rounded += storage.rounded_bytes;
  }
  trace_.peaks = {requested, rounded, rounded, 0, false};
  for (const TraceEvent& e : trace_.events) {
    if (e.kind != EventKind::alloc && e.kind != EventKind::free) continue;
    const int64_t sign = e.kind == EventKind::alloc ? 1 : -1;
    requested += sign * trace_.storages[at(e.id)].bytes;
    rounded += sign * trace_.storages[at(e.id)].rounded_bytes;
    trace_.peaks.requested_bytes = std::max(trace_.peaks.requested_bytes, requested);
    trace_.peaks.rounded_bytes = std::max(trace_.peaks.rounded_bytes, rounded);
  }
  trace_.peaks.reserved_bytes = trace_.peaks.rounded_bytes;
  return std::move(trace_);
}

}  // namespace lowtide::testing
