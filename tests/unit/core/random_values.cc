#include "unit/core/random_values.h"

#include <algorithm>
#include <string>

namespace lowtide::test {
namespace {

constexpr const char* kNames[] = {
    "aten::mm",    "aten::add_.Tensor", "aten::native_dropout", "my::op \"quoted\"\n\t\\",
    "aten::größe", "aten::gelu"};

class TraceBuilder {
 public:
  explicit TraceBuilder(uint64_t seed) : random_(seed) {}

  Trace build(int forward_ops) {
    fill_settings();
    add_parameters();
    for (int i = 0; i < forward_ops; ++i) add_forward_op();
    add_backward();
    return std::move(trace_);
  }

 private:
  bool chance(int percent) { return pick(random_, 1, 100) <= percent; }

  void fill_settings() {
    TraceSettings& s = trace_.settings;
    s.name = "program " + std::to_string(pick(random_, 0, 99));
    s.device = chance(50) ? "cpu" : "cuda:0 NVIDIA \"X\"";
    s.torch_version = "2.15.0";
    s.lowtide_version = "0.1.0";
    s.clock = "thread_cpu";
    s.intra_op_threads = static_cast<int32_t>(pick(random_, 1, 8));
    s.probe_steps = static_cast<int32_t>(pick(random_, 0, 3));
    s.deterministic = chance(50);
    trace_.step_ns = pick(random_, 0, 1'000'000'000);
    trace_.watch_ns = pick(random_, 0, 1'000'000);
    trace_.exchange_ns = pick(random_, 0, 1'000'000);
    trace_.outside_bytes = pick(random_, 0, 1 << 20);
    trace_.peaks = {pick(random_, 0, 1 << 30), pick(random_, 0, 1 << 30), pick(random_, 0, 1 << 30),
                    pick(random_, 0, 1 << 30), chance(50)};
    trace_.quality = {pick(random_, 0, 9), pick(random_, 0, 9),
                      static_cast<double>(pick(random_, 0, 1'000'000)) / 1e6,
                      pick(random_, -1000, 1000)};
  }

  StorageId add_storage(StorageKind kind, bool resident) {
    TraceStorage s;
    s.bytes = chance(10) ? 0 : pick(random_, 1, 1 << 24);
    s.rounded_bytes = s.bytes + pick(random_, 0, 511);
    s.kind = kind;
    s.resident = resident;
    trace_.storages.push_back(std::move(s));
    return static_cast<StorageId>(trace_.storages.size()) - 1;
  }

  void add_parameters() {
    for (int i = 0; i < 3; ++i) live_.push_back(add_storage(StorageKind::parameter, true));
  }

  void event(EventKind kind, int32_t id) { trace_.events.push_back({kind, id}); }

  OpId begin_op(Phase phase) {
    TraceOp op;
    op.name = kNames[pick(random_, 0, 5)];
    op.phase = phase;
    op.graph = static_cast<int32_t>(pick(random_, 0, 2));
    op.host_ns = pick(random_, 0, 1'000'000);
    op.device_ns = pick(random_, 0, 1'000);
    op.samples = static_cast<int32_t>(pick(random_, 0, 9));
    op.iqr_ns = pick(random_, 0, 1'000);
    op.replay_ns = pick(random_, 0, 1'000'000);
    op.workspace_bytes = pick(random_, 0, 1 << 20);
    op.key = random_();
    op.shape_key = random_();
    op.flags = {chance(20), chance(20), chance(20), chance(20), chance(20), chance(20)};
    const StorageId input =
        live_[static_cast<size_t>(pick(random_, 0, static_cast<int64_t>(live_.size()) - 1))];
    op.inputs.push_back({input, static_cast<int32_t>(storage(input).writers.size())});
    trace_.ops.push_back(std::move(op));
    const auto id = static_cast<OpId>(trace_.ops.size()) - 1;
    event(EventKind::op_begin, id);
    return id;
  }

  TraceStorage& storage(StorageId id) { return trace_.storages[static_cast<size_t>(id)]; }

  void add_forward_op() {
    const OpId op = begin_op(Phase::forward);
    const StorageId output = add_storage(StorageKind::activation, false);
    if (storage(output).bytes > 0) event(EventKind::alloc, output);
    event(EventKind::op_end, op);
    trace_.ops.back().outputs.push_back(output);
    storage(output).writers.push_back(op);
    storage(output).recomputable = chance(70);
    if (!storage(output).recomputable) storage(output).keep_reason = "written by an opaque op";
    live_.push_back(output);
    if (chance(30)) write_in_place(output);
    if (chance(70)) pack(output, op);
    if (chance(50)) event(EventKind::release, output);
  }

  void write_in_place(StorageId target) {
    const OpId op = begin_op(Phase::forward);
    event(EventKind::op_end, op);
    trace_.ops.back().writes.push_back(target);
    storage(target).writers.push_back(op);
  }

  void pack(StorageId id, OpId op) {
    TraceSave save;
    save.storage = id;
    save.version = static_cast<int32_t>(storage(id).writers.size());
    save.packed_by = chance(90) ? op : kNone;
    save.evicted_in_probe = chance(10);
    trace_.saves.push_back(save);
    event(EventKind::pack, static_cast<SaveId>(trace_.saves.size()) - 1);
  }

  void add_backward() {
    int32_t order = 0;
    for (size_t i = trace_.saves.size(); i-- > 0;) {
      TraceSave& save = trace_.saves[i];
      if (chance(90)) {
        save.first_unpack = save.last_unpack = static_cast<OpId>(trace_.ops.size());
        save.unpack_order = order++;
        event(EventKind::unpack, static_cast<SaveId>(i));
        event(EventKind::op_end, begin_op(Phase::backward));
      }
      event(EventKind::drop_save, static_cast<SaveId>(i));
    }
    for (const StorageId id : live_) {
      const TraceStorage& s = storage(id);
      if (!s.resident && s.bytes > 0 && chance(80)) event(EventKind::free, id);
    }
  }

  std::mt19937_64 random_;
  Trace trace_;
  std::vector<StorageId> live_;
};

}  // namespace

int64_t pick(std::mt19937_64& random, int64_t least, int64_t most) {
  const auto span = static_cast<uint64_t>(most - least) + 1;
  return least + static_cast<int64_t>(random() % span);
}

Trace random_trace(uint64_t seed, int forward_ops) { return TraceBuilder(seed).build(forward_ops); }

Plan random_plan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto bytes = [&] { return pick(random, 0, int64_t{1} << 40); };
  Plan plan;
  plan.trace_fingerprint = random();
  plan.strategy = "greedy";
  plan.budget_bytes = bytes();
  plan.account = {bytes(), bytes(), bytes(), bytes(), bytes(), bytes(), bytes()};
  StorageId storage = 0;
  for (int64_t n = pick(random, 0, 20); n > 0; --n) {
    storage += static_cast<StorageId>(pick(random, 1, 9));
    plan.decisions.push_back({storage, Action::drop, pick(random, 0, 1) == 1});
  }
  plan.predicted = {bytes(),  bytes(), bytes(),
                    bytes(),  bytes(), bytes(),
                    bytes(),  bytes(), static_cast<int32_t>(pick(random, -1, 1000)),
                    {3, 1, 2}};
  plan.measured = {pick(random, 0, 1) == 1, bytes(), bytes(), bytes(), bytes(), bytes(), bytes()};
  if (pick(random, 0, 1) == 1) {
    plan.bound = {bytes(), static_cast<double>(pick(random, 0, 1000)) / 1000, "single"};
  }
  return plan;
}

}  // namespace lowtide::test
