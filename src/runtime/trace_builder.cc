#include "runtime/trace_builder.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "profiler/cpu_clock.h"

namespace lowtide::runtime {

TraceBuilder::TraceBuilder(std::vector<const StepLog*> logs, std::function<int64_t(int64_t)> round)
    : logs_(std::move(logs)), round_(std::move(round)), last_(logs_.back()) {}

Trace TraceBuilder::build(TraceSettings settings) {
  trace_ = {};
  trace_.settings = std::move(settings);
  trace_.settings.probe_steps = static_cast<int32_t>(logs_.size());
  map_ops();
  pool_times();
  add_storages();
  add_saves_and_events();
  classify();
  decide_recomputable();
  return std::move(trace_);
}

void TraceBuilder::map_ops() {
  for (const LoggedOp& logged : last_->ops_) {
    ops_before_.push_back(static_cast<OpId>(trace_.ops.size()));
    if (logged.wrapper || !logged.done) {
      op_of_.push_back(kNone);
      continue;
    }
    op_of_.push_back(static_cast<OpId>(trace_.ops.size()));
    TraceOp op;
    op.name = logged.info->name;
    op.phase = logged.phase;
    op.key = logged.key;
    op.shape_key = logged.shape_key;
    op.flops = logged.flops;
    op.flags.random = logged.info->random;
    op.flags.mutates = logged.info->writes != 0;
    op.flags.opaque = !logged.info->replayable;
    op.flags.collective = logged.info->collective;
    op.flags.data_dependent = logged.info->data_dependent;
    op.flags.effect = logged.info->effect;
    op.inputs = logged.inputs;
    op.outputs = logged.outputs;
    op.writes = logged.writes;
    trace_.ops.push_back(std::move(op));
  }
  ops_before_.push_back(static_cast<OpId>(trace_.ops.size()));
}

void TraceBuilder::pool_times() {
  using Instance = std::tuple<uint64_t, uint64_t, uint64_t, Phase>;
  struct Samples {
    std::vector<int64_t> host;
    std::vector<int64_t> device;
  };
  std::map<Instance, Samples> samples;
  const auto instance = [](const LoggedOp& op) {
    return Instance{op.info->name_hash, op.shape_key, op.sizes, op.phase};
  };
  for (const StepLog* log : logs_) {
    for (const LoggedOp& op : log->ops_) {
      if (!op.wrapper && op.done) {
        samples[instance(op)].host.push_back(op.ns);
        samples[instance(op)].device.push_back(op.device_ns);
      }
    }
  }
  struct Pooled {
    profiler::SampleStats host;
    profiler::SampleStats device;
  };
  std::map<Instance, Pooled> pooled;
  for (auto& [key, values] : samples) {
    pooled[key] = {profiler::pool(values.host), profiler::pool(values.device)};
  }
  for (size_t i = 0; i < last_->ops_.size(); ++i) {
    if (op_of_[i] == kNone) {
      continue;
    }
    const auto& [host, device] = pooled[instance(last_->ops_[i])];
    TraceOp& op = trace_.ops[static_cast<size_t>(op_of_[i])];
    op.host_ns = host.median_ns;
    op.device_ns = device.median_ns;
    op.iqr_ns = device.median_ns > host.median_ns ? device.iqr_ns : host.iqr_ns;
    op.samples = static_cast<int32_t>(host.count);
  }
  std::vector<int64_t> steps;
  for (const StepLog* log : logs_) {
    steps.push_back(log->step_ns());
  }
  trace_.step_ns = profiler::pool(steps).median_ns;
  int64_t attributed = 0;
  for (const TraceOp& op : trace_.ops) {
    attributed += op.time_ns();
  }
  if (trace_.step_ns > 0) {
    trace_.quality.unattributed_share = std::clamp(
        1.0 - static_cast<double>(attributed) / static_cast<double>(trace_.step_ns), 0.0, 1.0);
  }
}

void TraceBuilder::add_storages() {
  int64_t known_requested = 0;
  int64_t known_rounded = 0;
  for (const LoggedStorage& logged : last_->storages_) {
    TraceStorage storage;
    if (logged.outside) {
      trace_.outside_bytes += logged.bytes;
    } else {
      storage.bytes = logged.bytes;
      storage.rounded_bytes = round_(logged.bytes);
    }
    storage.kind = logged.kind;
    storage.resident = logged.resident;
    for (const OpId writer : logged.writers) {
      if (op_of_[static_cast<size_t>(writer)] != kNone) {
        storage.writers.push_back(op_of_[static_cast<size_t>(writer)]);
      }
    }
    storage.recomputable = logged.captured && logged.replayable;
    storage.keep_reason = logged.keep_reason;
    if (storage.resident) {
      known_requested += storage.bytes;
      known_rounded += storage.rounded_bytes;
    }
    trace_.storages.push_back(std::move(storage));
  }
  // Everything else that was alive when the step began, as one block.
  TraceStorage rest;
  rest.resident = true;
  rest.kind = StorageKind::other;
  rest.bytes = std::max<int64_t>(0, last_->resident_requested_ - known_requested);
  rest.rounded_bytes = std::max<int64_t>({rest.bytes, last_->resident_rounded_ - known_rounded, 0});
  if (rest.rounded_bytes > 0) {
    trace_.storages.push_back(std::move(rest));
  }
}

void TraceBuilder::add_saves_and_events() {
  for (TraceSave save : last_->saves_) {
    const auto remap_count = [&](OpId log_count) {
      return log_count == kNone ? kNone : ops_before_[static_cast<size_t>(log_count)];
    };
    save.packed_by = save.packed_by == kNone ? kNone : op_of_[static_cast<size_t>(save.packed_by)];
    save.first_unpack = remap_count(save.first_unpack);
    save.last_unpack = remap_count(save.last_unpack);
    trace_.saves.push_back(save);
  }
  for (const TraceEvent& event : last_->events_) {
    TraceEvent mapped = event;
    if (event.kind == EventKind::op_begin || event.kind == EventKind::op_end) {
      mapped.id = op_of_[static_cast<size_t>(event.id)];
      if (mapped.id == kNone) {
        continue;
      }
    }
    trace_.events.push_back(mapped);
  }
}

void TraceBuilder::classify() {
  std::vector<OpId> allocated_in(trace_.storages.size(), kNone);
  std::vector<char> freed(trace_.storages.size(), 0);
  std::vector<char> saved(trace_.storages.size(), 0);
  OpId current = kNone;
  Phase phase = Phase::forward;
  int64_t live = 0;
  for (const TraceSave& save : trace_.saves) {
    saved[static_cast<size_t>(save.storage)] = 1;
  }
  for (const TraceEvent& event : trace_.events) {
    const auto id = static_cast<size_t>(event.id);
    switch (event.kind) {
      case EventKind::op_begin:
        current = event.id;
        phase = trace_.ops[id].phase;
        live = 0;
        break;
      case EventKind::op_end:
        current = kNone;
        break;
      case EventKind::alloc: {
        TraceStorage& storage = trace_.storages[id];
        allocated_in[id] = current;
        storage.kind = phase == Phase::backward    ? StorageKind::gradient
                       : phase == Phase::optimizer ? StorageKind::optimizer_state
                                                   : StorageKind::activation;
        if (current != kNone) {
          live += storage.bytes;
        }
        break;
      }
      case EventKind::free:
        freed[id] = 1;
        if (current != kNone && allocated_in[id] == current) {
          trace_.storages[id].kind = StorageKind::temporary;
          TraceOp& op = trace_.ops[static_cast<size_t>(current)];
          op.workspace_bytes = std::max(op.workspace_bytes, live);
          live -= trace_.storages[id].bytes;
        } else if (trace_.storages[id].resident && phase != Phase::optimizer &&
                   trace_.storages[id].kind == StorageKind::other) {
          trace_.storages[id].kind = StorageKind::gradient;  // zero_grad
        }
        break;
      default:
        break;
    }
  }
  for (size_t i = 0; i < trace_.storages.size(); ++i) {
    TraceStorage& storage = trace_.storages[i];
    const bool step_local =
        storage.kind == StorageKind::gradient || storage.kind == StorageKind::optimizer_state;
    if (saved[i] != 0 && !storage.resident) {
      storage.kind = StorageKind::activation;
    } else if (step_local && !storage.resident && freed[i] != 0) {
      storage.kind = StorageKind::other;  // an intermediate of backward or of the optimizer
    }
  }
}

bool TraceBuilder::opaque_at(StorageRef ref) const {
  const TraceStorage& storage = trace_.storages[static_cast<size_t>(ref.storage)];
  if (storage.writers.empty()) {
    return false;  // external: the runtime keeps it or rescues it
  }
  const auto sid = static_cast<size_t>(ref.storage);
  if (sid < last_->storages_.size()) {
    const LoggedStorage& logged = last_->storages_[sid];
    const bool created_empty =
        !logged.writers.empty() &&
        last_->ops_[static_cast<size_t>(logged.writers.front())].info->empty_factory;
    if (ref.version == 1 && created_empty) {
      return true;
    }
    return !logged.replayable && !(created_empty && logged.writers.size() == 1);
  }
  return true;
}

std::string TraceBuilder::why_not_recomputable(StorageId target,
                                               const std::vector<int64_t>& freed_at,
                                               const std::vector<int64_t>& last_unpack) const {
  std::vector<char> seen(trace_.storages.size(), 0);
  std::vector<StorageId> stack{target};
  seen[static_cast<size_t>(target)] = 1;
  while (!stack.empty()) {
    const StorageId current = stack.back();
    stack.pop_back();
    for (const OpId writer : trace_.storages[static_cast<size_t>(current)].writers) {
      const TraceOp& op = trace_.ops[static_cast<size_t>(writer)];
      for (const StorageRef& ref : op.inputs) {
        const auto source = static_cast<size_t>(ref.storage);
        const bool written =
            std::find(op.writes.begin(), op.writes.end(), ref.storage) != op.writes.end();
        if (!written && opaque_at(ref)) {
          if (freed_at[source] <= last_unpack[static_cast<size_t>(target)]) {
            return op.name + " reads a tensor that cannot be rebuilt and is gone by then";
          }
        } else if (seen[source] == 0) {
          seen[source] = 1;
          stack.push_back(ref.storage);
        }
      }
    }
  }
  return {};
}

void TraceBuilder::decide_recomputable() {
  std::vector<int64_t> freed_at(trace_.storages.size(), INT64_MAX);
  std::vector<int64_t> last_unpack(trace_.storages.size(), -1);
  std::vector<char> saved_unread(trace_.storages.size(), 0);
  for (const TraceSave& save : trace_.saves) {
    saved_unread[static_cast<size_t>(save.storage)] = 1;
  }
  for (const TraceSave& save : trace_.saves) {
    if (save.first_unpack != kNone) {
      saved_unread[static_cast<size_t>(save.storage)] = 0;
    }
  }
  for (size_t i = 0; i < trace_.events.size(); ++i) {
    const TraceEvent& event = trace_.events[i];
    if (event.kind == EventKind::free) {
      freed_at[static_cast<size_t>(event.id)] = static_cast<int64_t>(i);
    } else if (event.kind == EventKind::unpack) {
      last_unpack[static_cast<size_t>(trace_.saves[static_cast<size_t>(event.id)].storage)] =
          static_cast<int64_t>(i);
    }
  }
  for (size_t i = 0; i < trace_.storages.size(); ++i) {
    TraceStorage& storage = trace_.storages[i];
    if (!storage.recomputable) {
      if (storage.keep_reason.empty() && storage.writers.empty() && !storage.resident) {
        storage.keep_reason = "not made by an operator that Lowtide saw";
      }
      continue;
    }
    if (storage.bytes == 0) {
      storage.keep_reason = "has no bytes";
    } else if (saved_unread[i] != 0) {
      storage.keep_reason = "saved, but not read by the backward that was measured";
    } else if (storage.writers.empty() ||
               trace_.ops[static_cast<size_t>(storage.writers.front())].phase != Phase::forward) {
      storage.keep_reason = "made outside the differentiable forward";
    } else {
      storage.keep_reason = why_not_recomputable(static_cast<StorageId>(i), freed_at, last_unpack);
    }
    storage.recomputable = storage.keep_reason.empty();
  }
}

}  // namespace lowtide::runtime
