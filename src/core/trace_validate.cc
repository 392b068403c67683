// The invariants of a trace. The planner walks traces without checking again, so everything that
// could lead it out of range, into an overflow or into an impossible state is refused here.
#include <vector>

#include "core/error.h"
#include "core/trace.h"

namespace lowtide {
namespace {

// Sums over a step stay below this (64 PiB, 2.2 years), so that a planner may add, and replay a
// hundred times over, in 64 bits.
constexpr int64_t kMostExchangeNs = 1'000'000'000;
constexpr int64_t kMaxSum = int64_t{1} << 56;
constexpr int64_t kMaxProduct = int64_t{1} << 62;

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw FileError("invalid trace: " + where + ": " + problem +
                  ". Fix: the trace is damaged or edited; probe again to write a new one");
}

std::string at(const char* list, size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

void check(bool condition, const char* list, size_t index, const char* problem) {
  if (!condition) [[unlikely]]
    fail(at(list, index), problem);
}

class Validator {
 public:
  explicit Validator(const Trace& trace) : trace_(trace) {}

  void run() {
    check_totals();
    for (size_t i = 0; i < trace_.storages.size(); ++i) check_storage(i);
    for (size_t i = 0; i < trace_.ops.size(); ++i) check_op(i);
    check_products();
    for (size_t i = 0; i < trace_.storages.size(); ++i) check_recipe(i);
    check_saves();
    check_events();
    check_blocks();
    if (trace_.execution == Execution::joint) check_joint();
  }

 private:
  struct SaveState {
    bool packed = false, dropped = false, unpacked = false;
  };

  static bool in_range(int32_t id, size_t count) {
    return id >= 0 && static_cast<size_t>(id) < count;
  }
  static bool op_count_or_none(int32_t count, size_t ops) {
    return count == kNone || (count >= 0 && static_cast<size_t>(count) <= ops);
  }
  static void check_value(int64_t value, const char* name) {
    if (value < 0) fail(name, "is negative");
    if (value > kMaxSum) fail(name, "is above 2^56");
  }

  void check_totals() const {
    if (trace_.ops.size() > INT32_MAX || trace_.storages.size() > INT32_MAX ||
        trace_.saves.size() > INT32_MAX || trace_.events.size() > INT32_MAX) {
      fail("trace", "has more than 2^31 entries in one list");
    }
    check_value(trace_.step_ns, "step_ns");
    check_value(trace_.watch_ns, "watch_ns");
    check_value(trace_.exchange_ns, "exchange_ns");
    if (trace_.exchange_ns > kMostExchangeNs) fail("exchange_ns", "is above a second");
    check_value(trace_.outside_bytes, "outside_bytes");
    check_value(trace_.peaks.requested_bytes, "peaks.requested_bytes");
    check_value(trace_.peaks.rounded_bytes, "peaks.rounded_bytes");
    check_value(trace_.peaks.reserved_bytes, "peaks.reserved_bytes");
    check_value(trace_.peaks.device_total_bytes, "peaks.device_total_bytes");
    check_value(trace_.quality.dropped_records, "quality.dropped_records");
    check_value(trace_.quality.zero_stamped_records, "quality.zero_stamped_records");
    const double share = trace_.quality.unattributed_share;
    if (!(share >= 0 && share <= 1)) fail("quality.unattributed_share", "is not between 0 and 1");
    if (trace_.settings.intra_op_threads < 1) fail("settings.intra_op_threads", "is below 1");
    if (trace_.settings.probe_steps < 0) fail("settings.probe_steps", "is negative");
  }

  void check_storage(size_t i) {
    const TraceStorage& s = trace_.storages[i];
    check(s.bytes >= 0, "storages", i, "bytes is negative");
    check(s.rounded_bytes >= s.bytes, "storages", i, "rounded_bytes is below bytes");
    check(s.rounded_bytes <= kMaxSum - total_bytes_, "storages", i,
          "all storages together are above 2^56 bytes");
    total_bytes_ += s.rounded_bytes;
    OpId previous = kNone;
    for (const OpId writer : s.writers) {
      check(in_range(writer, trace_.ops.size()), "storages", i, "has a writer that is not an op");
      check(writer > previous, "storages", i, "writers are not in completion order");
      previous = writer;
    }
  }

  void check_op(size_t i) {
    const TraceOp& op = trace_.ops[i];
    check(!op.name.empty(), "ops", i, "has no name");
    check(op.graph >= 0, "ops", i, "graph is negative");
    check(op.host_ns >= 0 && op.device_ns >= 0 && op.iqr_ns >= 0 && op.replay_ns >= 0, "ops", i,
          "a time is negative");
    check(op.samples >= 0, "ops", i, "samples is negative");
    check(op.workspace_bytes >= 0 && op.workspace_bytes <= kMaxSum, "ops", i,
          "workspace_bytes is negative or above 2^56");
    check(op.flops >= 0, "ops", i, "flops is negative");
    check(op.host_ns <= kMaxSum && op.device_ns <= kMaxSum && op.iqr_ns <= kMaxSum &&
              op.replay_ns <= kMaxSum &&
              op.host_ns + op.device_ns + op.replay_ns <= kMaxSum - total_ns_,
          "ops", i, "all op times together are above 2^56 ns");
    total_ns_ += op.host_ns + op.device_ns + op.replay_ns;
    for (const StorageRef& input : op.inputs) {
      check(in_range(input.storage, trace_.storages.size()), "ops", i,
            "has an input that is not a storage");
      check(version_ok(input.storage, input.version), "ops", i,
            "reads a version above the storage's number of writers");
      // Keeps recipes free of cycles.
      const auto& writers = trace_.storages[static_cast<size_t>(input.storage)].writers;
      check(input.version == 0 ||
                static_cast<size_t>(writers[static_cast<size_t>(input.version) - 1]) < i,
            "ops", i, "reads a value that is written later");
    }
    for (const StorageId output : op.outputs) {
      check(in_range(output, trace_.storages.size()), "ops", i,
            "has an output that is not a storage");
    }
    for (const StorageId written : op.writes) {
      check(in_range(written, trace_.storages.size()), "ops", i, "writes what is not a storage");
    }
  }

  // A search sums live bytes over the events, and op times over what each of them recomputes.
  void check_products() const {
    const auto events = static_cast<int64_t>(trace_.events.size() + 1);
    if (total_bytes_ > kMaxProduct / events || total_ns_ > kMaxProduct / events) {
      fail("trace", "all bytes or all op times, times the number of events, are above 2^62");
    }
  }

  bool version_ok(StorageId storage, int32_t version) const {
    const auto& writers = trace_.storages[static_cast<size_t>(storage)].writers;
    return version >= 0 && static_cast<size_t>(version) <= writers.size();
  }

  // What may be dropped must have a recipe: its creator, then writers that really write it.
  void check_recipe(size_t i) const {
    const TraceStorage& s = trace_.storages[i];
    if (!s.recomputable) return;
    check(!s.resident, "storages", i, "is recomputable and resident");
    check(!s.writers.empty(), "storages", i, "is recomputable and has no writers");
    const auto id = static_cast<StorageId>(i);
    for (size_t w = 0; w < s.writers.size(); ++w) {
      const TraceOp& op = trace_.ops[static_cast<size_t>(s.writers[w])];
      const auto& touched = w == 0 ? op.outputs : op.writes;
      bool found = false;
      for (const StorageId t : touched) found = found || t == id;
      check(found, "storages", i,
            w == 0 ? "its first writer does not create it" : "a writer does not write it");
    }
  }

  // A joint graph is functional, and whatever its backward may need can be had again.
  void check_joint() const {
    std::vector<char> saved(trace_.storages.size());
    for (const TraceSave& save : trace_.saves) saved[static_cast<size_t>(save.storage)] = 1;
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      check(trace_.ops[i].writes.empty(), "ops", i, "writes in place in a joint graph");
      for (const StorageId output : trace_.ops[i].outputs) {
        const TraceStorage& s = trace_.storages[static_cast<size_t>(output)];
        check(s.writers == std::vector<OpId>{static_cast<OpId>(i)} && !s.resident, "ops", i,
              "has an output in a joint graph that it is not the only writer of");
        const bool lasts = alive_[static_cast<size_t>(output)] != 0;
        check(s.recomputable || saved[static_cast<size_t>(output)] != 0 || lasts ||
                  trace_.ops[i].phase != Phase::forward,
              "storages", static_cast<size_t>(output),
              "is of the forward of a joint graph, and neither saved nor lasting nor recomputable");
      }
    }
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      const TraceStorage& s = trace_.storages[i];
      const bool forward = !s.writers.empty() &&
                           trace_.ops[static_cast<size_t>(s.writers[0])].phase == Phase::forward;
      check(s.writers.size() <= 1, "storages", i, "has several writers in a joint graph");
      check(!s.recomputable || (forward && alive_[i] == 0), "storages", i,
            "is recomputable in a joint graph, but not of its forward or never freed");
    }
  }

  void check_saves() const {
    std::vector<char> order_taken(trace_.saves.size(), 0);
    for (size_t i = 0; i < trace_.saves.size(); ++i) {
      const TraceSave& s = trace_.saves[i];
      check(in_range(s.storage, trace_.storages.size()), "saves", i, "storage does not exist");
      check(version_ok(s.storage, s.version), "saves", i,
            "version is above the storage's number of writers");
      check(s.packed_by == kNone || in_range(s.packed_by, trace_.ops.size()), "saves", i,
            "packed_by is not an op");
      check(op_count_or_none(s.first_unpack, trace_.ops.size()) &&
                op_count_or_none(s.last_unpack, trace_.ops.size()),
            "saves", i, "an unpack lies outside the step");
      check(
          (s.first_unpack == kNone) == (s.last_unpack == kNone) && s.first_unpack <= s.last_unpack,
          "saves", i, "first_unpack and last_unpack contradict each other");
      check((s.unpack_order == kNone) == (s.first_unpack == kNone), "saves", i,
            "unpack_order and first_unpack contradict each other");
      if (s.unpack_order == kNone) continue;
      check(in_range(s.unpack_order, trace_.saves.size()), "saves", i,
            "unpack_order is out of range");
      char& taken = order_taken[static_cast<size_t>(s.unpack_order)];
      check(taken == 0, "saves", i, "unpack_order appears twice");
      taken = 1;
    }
  }

  void check_events() {
    alive_.resize(trace_.storages.size());
    allocated_.assign(trace_.storages.size(), 0);
    for (size_t i = 0; i < alive_.size(); ++i) alive_[i] = trace_.storages[i].resident ? 1 : 0;
    saves_.assign(trace_.saves.size(), {});
    for (size_t i = 0; i < trace_.events.size(); ++i) check_event(i);
    check(!in_op_, "ops", next_op_ == 0 ? 0 : next_op_ - 1, "begins and never ends");
    check(next_op_ == trace_.ops.size(), "ops", next_op_, "has no events");
    for (size_t i = 0; i < saves_.size(); ++i) {
      check(saves_[i].packed, "saves", i, "is never packed");
      check(saves_[i].unpacked == (trace_.saves[i].first_unpack != kNone), "saves", i,
            "its unpack events and first_unpack contradict each other");
    }
  }

  void check_blocks() const {
    OpId previous_end = 0;
    for (size_t i = 0; i < trace_.blocks.size(); ++i) {
      const TraceBlock& block = trace_.blocks[i];
      check(block.begin >= previous_end, "blocks", i, "does not lie behind the one before");
      check(block.end > block.begin && static_cast<size_t>(block.end) <= trace_.ops.size(),
            "blocks", i, "is empty or ends behind the last op");
      for (OpId o = block.begin; o < block.end; ++o) {
        check(trace_.ops[static_cast<size_t>(o)].phase == Phase::forward, "blocks", i,
              "holds an op that is not of the forward");
      }
      previous_end = block.end;
    }
  }

  void check_event(size_t i) {
    const TraceEvent& event = trace_.events[i];
    const auto id = static_cast<size_t>(event.id);
    switch (event.kind) {
      case EventKind::op_begin:
        check(in_range(event.id, trace_.ops.size()), "events", i, "op does not exist");
        check(!in_op_, "events", i, "an op begins inside another");
        check(id == next_op_, "events", i, "ops do not begin in their order");
        in_op_ = true;
        ++next_op_;
        return;
      case EventKind::op_end:
        check(in_op_ && event.id >= 0 && id + 1 == next_op_, "events", i,
              "an op ends that is not running");
        in_op_ = false;
        return;
      case EventKind::alloc:
      case EventKind::free:
      case EventKind::release:
        check(in_range(event.id, trace_.storages.size()), "events", i, "storage does not exist");
        check_storage_event(i, event.kind, id);
        return;
      case EventKind::pack:
      case EventKind::unpack:
      case EventKind::drop_save:
        check(in_range(event.id, trace_.saves.size()), "events", i, "save does not exist");
        check_save_event(i, event.kind, saves_[id], trace_.saves[id]);
        return;
    }
    fail(at("events", i), "has an unknown kind");
  }

  void check_storage_event(size_t i, EventKind kind, size_t id) {
    if (kind == EventKind::alloc) {
      check(alive_[id] == 0, "events", i, "allocates a storage that is alive");
      check(allocated_[id] == 0, "events", i, "allocates a storage for the second time");
      alive_[id] = allocated_[id] = 1;
    } else if (kind == EventKind::free) {
      check(alive_[id] != 0, "events", i, "frees a storage that is not alive");
      alive_[id] = 0;
    } else {
      check(alive_or_empty(id), "events", i, "releases a storage that is not alive");
    }
  }

  void check_save_event(size_t i, EventKind kind, SaveState& state, const TraceSave& save) {
    if (kind == EventKind::pack) {
      check(!state.packed, "events", i, "packs a save for the second time");
      check(alive_or_empty(static_cast<size_t>(save.storage)), "events", i,
            "packs a storage that is not alive");
      state.packed = true;
      return;
    }
    check(state.packed, "events", i, "uses a save before it is packed");
    check(!state.dropped, "events", i, "uses a save after it was dropped");
    if (kind == EventKind::drop_save) {
      state.dropped = true;
    } else {
      check(alive_or_empty(static_cast<size_t>(save.storage)), "events", i,
            "unpacks a storage that is not alive");
      state.unpacked = true;
    }
  }

  // A storage of zero bytes is never allocated.
  bool alive_or_empty(size_t id) const { return alive_[id] != 0 || trace_.storages[id].bytes == 0; }

  const Trace& trace_;
  int64_t total_bytes_ = 0;
  int64_t total_ns_ = 0;
  std::vector<char> alive_, allocated_;
  std::vector<SaveState> saves_;
  size_t next_op_ = 0;
  bool in_op_ = false;
};

}  // namespace

void Trace::validate() const { Validator(*this).run(); }

}  // namespace lowtide
