// What one steady training step of a program does, measured: the output of a probe and the only
// input of the planner. One `Trace` describes the *plain* program: no drops, no recomputation.
//
// Units: bytes and nanoseconds, integers. Indices: every `OpId`, `StorageId` and `SaveId` is the
// position in `Trace::ops`, `Trace::storages`, `Trace::saves`. A trace is a value: no thread safety
// beyond that of const access. `validate()` states the invariants. File format: FORMAT.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace lowtide {

using OpId = int32_t;
using StorageId = int32_t;
using SaveId = int32_t;
inline constexpr int32_t kNone = -1;

enum class Phase : uint8_t { forward, backward, optimizer, other };

// What a storage is for. `temporary` lives inside one op.
enum class StorageKind : uint8_t {
  activation,
  parameter,
  gradient,
  optimizer_state,
  buffer,
  input,
  temporary,
  other
};

// A storage read by an op, at the state it had after its first `version` writers ran
// (1 = as created by writers[0]; 0 = external storage as found).
struct StorageRef {
  StorageId storage = kNone;
  int32_t version = 0;
  friend bool operator==(const StorageRef&, const StorageRef&) = default;
};

struct OpFlags {
  bool random = false;          // draws from a generator (state is saved and put back on replay)
  bool mutates = false;         // writes at least one argument in place
  bool opaque = false;          // its effect is not fully described by its schema
  bool collective = false;      // communicates between processes
  bool data_dependent = false;  // output sizes or host values depend on data
  bool effect = false;          // prints, asserts, ...
  friend bool operator==(const OpFlags&, const OpFlags&) = default;
};

// One executed operator, in completion order. (The empty initializers here and below let tests and
// tools name only the fields they mean.)
struct TraceOp {
  std::string name = {};  // schema name with overload, "aten::add.Tensor"
  Phase phase = Phase::forward;
  int32_t graph = 0;            // joint graph of torch.compile; 0 in eager
  int64_t host_ns = 0;          // median over samples; thread CPU time where one thread is used
  int64_t device_ns = 0;        // 0 on CPU
  int32_t samples = 0;          // measurements pooled into host_ns; 0 = not measured
  int64_t iqr_ns = 0;           // interquartile range of the samples
  int64_t replay_ns = 0;        // median of its recomputations; 0 = never recomputed yet
  int64_t workspace_bytes = 0;  // peak of allocations freed inside the op (requested bytes)
  int64_t flops = 0;            // of products, convolutions and attention; 0 for all else
  uint64_t key = 0;             // structure hash: name, dtypes, flags, producer keys (no sizes)
  uint64_t shape_key = 0;       // hash of sizes and integer arguments
  OpFlags flags = {};
  std::vector<StorageRef> inputs = {};  // storages whose values are read (deduplicated)
  std::vector<StorageId> outputs = {};  // storages created
  std::vector<StorageId> writes = {};   // storages written in place
  // The host issues an op while the device still works on earlier ones: the longer of the two is
  // what the op adds to a step.
  [[nodiscard]] int64_t time_ns() const { return std::max(host_ns, device_ns); }
  // What running it once more costs. A recomputation is not the first run again: its memory is warm
  // where the forward's was fresh.
  [[nodiscard]] int64_t recompute_ns() const { return replay_ns > 0 ? replay_ns : time_ns(); }
};

// One allocation of the plain step; views share it.
struct TraceStorage {
  int64_t bytes = 0;          // requested
  int64_t rounded_bytes = 0;  // as the allocator rounds it
  StorageKind kind = StorageKind::activation;
  bool resident = false;         // alive when the step begins
  bool recomputable = false;     // complete writer chain, replayable: may be dropped
  std::string keep_reason = {};  // why not, when it has saves but is not recomputable
  std::vector<OpId> writers =
      {};  // creator, then in-place writers in completion order; empty = external
};

// One saved tensor: what autograd keeps of a storage for one backward node.
struct TraceSave {
  StorageId storage = kNone;
  int32_t version = 0;        // number of writers of the storage when it was packed
  OpId packed_by = kNone;     // op that was running or had just finished
  OpId first_unpack = kNone;  // op count when first / last unpacked; kNone = never unpacked
  OpId last_unpack = kNone;
  int32_t unpack_order = kNone;   // 0, 1, 2, ... in the order of first unpacks
  bool evicted_in_probe = false;  // the probe itself ran under pressure and had dropped it
};

// The step as a sequence. `id` is an op, a storage or a save, by kind.
//  op_begin/op_end  brackets; never nested
//  alloc/free       of a storage in the plain program
//  pack             a save begins to own the storage
//  unpack           backward is about to read the save (before the reading ops begin)
//  drop_save        the save is destroyed (graph freed)
//  release          from here on nothing but saves owns the storage: a dropped storage's bytes fall
//                   here; also after an unpack, when the reading node has finished
enum class EventKind : uint8_t { op_begin, op_end, alloc, free, pack, unpack, drop_save, release };
struct TraceEvent {
  EventKind kind = EventKind::op_begin;
  int32_t id = kNone;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// Ops [begin, end) of the forward that make up one of the model's repeating parts.
struct TraceBlock {
  OpId begin = kNone;
  OpId end = kNone;
  friend bool operator==(const TraceBlock&, const TraceBlock&) = default;
};

// What the simulated step follows.
//  eager  the events: what the program allocated and freed, op by op
//  joint  the ops: a compiled joint graph, where a planner writes the program anew for every plan.
//         A forward op runs only where something kept needs it; bytes live from their producer to
//         their last reader, and to the end where the storage is never freed; a value that is
//         neither saved nor lasting and that the backward reads is recomputed in every plan.
enum class Execution : uint8_t { eager, joint };

struct TracePeaks {  // of the plain step, bytes
  int64_t requested_bytes = 0;
  int64_t rounded_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t device_total_bytes = 0;  // 0 where there is no device to ask
  bool measured = false;           // false: derived from the events (the plain step did not fit)
};

struct TraceQuality {  // calibration quality
  int64_t dropped_records = 0;
  int64_t zero_stamped_records = 0;
  double unattributed_share = 0;  // of the step's time
  int64_t clock_drift_ns = 0;
};

struct TraceSettings {
  std::string name;    // of the program or session
  std::string device;  // "cpu", "cuda:0 NVIDIA H200"
  std::string torch_version;
  std::string lowtide_version;
  std::string clock;  // "thread_cpu", "wall", "cupti"
  int32_t intra_op_threads = 1;
  int32_t probe_steps = 0;
  bool deterministic = false;
};

struct Trace {
  TraceSettings settings;
  Execution execution = Execution::eager;
  std::vector<TraceOp> ops;
  std::vector<TraceStorage> storages;
  std::vector<TraceSave> saves;
  std::vector<TraceEvent> events;
  std::vector<TraceBlock> blocks;  // in order; empty: not marked
  int64_t step_ns = 0;             // plain step, same clock as the ops
  // What watching a step adds to it, on top of the above; 0 = not measured, then it is part of
  // step_ns.
  int64_t watch_ns = 0;
  // What one exchange of memory costs the allocator under a budget (cached segments given back for
  // another), mean over those of the verify steps; 0 = not measured.
  int64_t exchange_ns = 0;
  int64_t outside_bytes = 0;  // device memory the allocator does not hand out
  TracePeaks peaks;
  TraceQuality quality;

  // Identity of the program on this setup: settings that change numbers or bytes + all op keys.
  [[nodiscard]] uint64_t fingerprint() const;
  // Throws FileError naming the first broken invariant (index out of range, op nesting, alloc of a
  // live storage, unpack before pack, negative bytes or time, version above writers, ...).
  void validate() const;
};

[[nodiscard]] const char* to_string(Phase phase);
[[nodiscard]] const char* to_string(StorageKind kind);
[[nodiscard]] const char* to_string(EventKind kind);
[[nodiscard]] const char* to_string(Execution execution);

// Text of a fingerprint in file names and messages: 16 hex digits.
[[nodiscard]] std::string fingerprint_text(uint64_t fingerprint);

}  // namespace lowtide
