// What capture, holders, replay and eviction share while a session lives: the tapes, the mode of
// the running step, and the counters.
//
// One `Runtime` exists per session, one is active per process. Its mutex protects the tapes and the
// counters and is never held while an op runs, while memory is allocated or while it is freed
// (design section 5): a worker thread of an op may allocate, and so evict, at any moment.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/trace.h"
#include "hooks/training_memory.h"
#include "profiler/cpu_clock.h"
#include "runtime/device_streams.h"
#include "runtime/plan_index.h"
#include "runtime/replay_times.h"
#include "runtime/step_log.h"
#include "runtime/storage_bytes.h"
#include "runtime/tape.h"

namespace lowtide::runtime {

// Counters of one step; the session adds them up.
struct StepCounters {
  int64_t recompute_ns = 0;
  int64_t replayed_ops = 0;
  int64_t evictions = 0;
  int64_t evicted_bytes = 0;
  int64_t rescues = 0;
  int64_t rescued_bytes = 0;
  int64_t verified = 0;
  int64_t mismatched = 0;
  int64_t canaries = 0;
  int64_t packs = 0;
  int64_t drops = 0;
};

class Runtime {
 public:
  // `allocator`: gives memory of `device` to ops; outlives the runtime.
  Runtime(profiler::ClockKind clock_kind, const hooks::TrainingMemory& allocator,
          c10::Device device)
      : clock(clock_kind), memory(allocator), streams(device) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // --- life of a step (called by the session) ---
  void begin_step();
  void end_step();
  // Backward begins or ends (from the engine); nested calls count.
  void enter_backward();
  void leave_backward();

  // --- shared state ---
  std::mutex mutex;
  std::shared_ptr<Tape> tape;              // of the running step
  std::vector<std::weak_ptr<Tape>> older;  // earlier steps whose graphs are still alive
  const profiler::ClockKind clock;
  const hooks::TrainingMemory& memory;
  const DeviceStreams streams;  // of the device whose memory the budget is of
  // Does the storage count against the budget? Others are never dropped: it would gain nothing.
  [[nodiscard]] bool budgeted(const c10::StorageImpl& storage) const {
    return storage.device() == streams.device();
  }
  [[nodiscard]] int64_t budgeted_bytes(const c10::StorageImpl& storage) const {
    return budgeted(storage) ? static_cast<int64_t>(storage.nbytes()) : 0;
  }

  // Of what means nothing: the same for all. The one op that may run under the mutex: a device's
  // bytes are copied to the host, which takes no memory that the budget is of.
  [[nodiscard]] Digest128 digest_of_values(const c10::StorageImpl& storage) const {
    return memory.has_values() ? digest_of(storage) : Digest128{};
  }
  [[nodiscard]] bool capturing() const { return streams.asynchronous() && memory.capturing(); }

  // On CUDA ops draw from the device's generator, some of them without declaring it.
  at::Generator device_generator;

  bool in_step = false;
  bool verify = false;           // keep, recompute and compare at every unpack
  StepLog* log = nullptr;        // probe steps only
  int64_t log_id = 0;            // of `log`, never reused; 0 = none
  std::atomic<int> internal{0};  // open InternalScopes, of all threads
  int backward_depth = 0;
  bool had_backward = false;

  // Plan of the running step; null = keep everything, evict under pressure.
  PlanRun plan;
  int32_t forward_ops = 0;                  // of the running step
  std::vector<uint64_t> step_keys;          // of the forward ops so far
  std::vector<int64_t> op_ns;               // by ordinal: the first run's time, frozen
  ReplayTimes* replay_times = nullptr;      // verify steps: what each recomputation costs
  std::unordered_set<uint64_t> never_drop;  // creator ids that failed verification
  std::unordered_set<uint64_t> trusted;     // recipe ids that passed: only these are ever dropped
  struct MismatchReport {
    int32_t ordinal = -1;
    int32_t output = 0;
    bool canary = false;
    std::string text;
  };
  std::vector<MismatchReport> mismatches;  // failed comparisons since the session looked
  // A known plan whose first ops are `step_keys`; null = none. Called with the mutex held.
  std::function<std::shared_ptr<const PlanIndex>()> find_variant;
  // Same structure, other sizes: the plan for activations `ratio` times as large; null = keep the
  // plan. Called with the mutex held: must not allocate tensors.
  std::function<std::shared_ptr<const PlanIndex>(double ratio)> rescale;
  // A plan given by hand turned out to be of another program. Unset: Mismatch is thrown from the
  // op.
  std::function<void(const std::string&)> on_mismatch;
  uint64_t canary = 0;  // creator id to check in this step; 0 = none

  StepCounters counters;
  int64_t pack_clock = 0;  // packs so far, over all steps

  // Polls saved storages for `release` events (probe steps). Caller holds the mutex.
  void poll_releases();
  std::vector<std::pair<std::shared_ptr<Tape>, int32_t>> watched;  // packed, not yet released
  // Storages that no ledger reports (device memory, memory of other libraries): their frees are
  // polled.
  std::vector<std::pair<std::shared_ptr<Tape>, int32_t>> foreign;
  void watch_foreign(const std::shared_ptr<Tape>& owner, int32_t slot);

  // Price of a forward op for eviction: its first measured time, the same in all later steps
  // (prices that move make the victims, and so the floor, differ from step to step).
  int64_t price_of(int32_t ordinal, int64_t measured_ns);

  [[nodiscard]] Phase phase() const;
  // Do saved tensors of any step still wait for their backward?
  [[nodiscard]] bool has_holders();
  // All tapes that are alive, the current one last. Caller holds the mutex.
  [[nodiscard]] std::vector<std::shared_ptr<Tape>> tapes();

  // The active runtime of this process; null outside sessions.
  [[nodiscard]] static Runtime* active() noexcept {
    return active_.load(std::memory_order_acquire);
  }
  static void set_active(Runtime* runtime) noexcept {
    active_.store(runtime, std::memory_order_release);
  }

 private:
  static std::atomic<Runtime*> active_;
};

// The output bytes of this many first forward ops tell how a step's sizes compare with the plan's.
inline constexpr int32_t kSizingOps = 8;

// Marks a stretch in which Lowtide itself runs ops (replay, rescue, eviction): not captured, not
// logged. Counted in the runtime, not in the log: another thread's eviction may begin or end after
// the logged step does.
class InternalScope {
 public:
  explicit InternalScope(Runtime& runtime) : open_(runtime.internal) { ++open_; }
  ~InternalScope() { --open_; }
  InternalScope(const InternalScope&) = delete;
  InternalScope& operator=(const InternalScope&) = delete;

 private:
  std::atomic<int>& open_;
};

}  // namespace lowtide::runtime
