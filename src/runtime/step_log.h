// The raw log of one probe step, and the trace made from it.
//
// While a step is logged, the caching core's sink, the capture core and the saved-tensor holders
// append to it: which storage was allocated and freed when, which op ran how long, what was packed
// and unpacked. The log describes the plain program even when the step itself ran under pressure:
// what eviction and replay allocate and free is left out (`internal` scopes), and a storage that
// was evicted counts as alive until the program would have freed it.
//
// Thread safety: every method takes the log's own mutex, which is a leaf (nothing is called under
// it).
#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/trace.h"
#include "hooks/ledger.h"
#include "hooks/training_memory.h"
#include "runtime/op_info.h"

namespace lowtide::runtime {

struct LoggedOp {
  const OpInfo* info = nullptr;
  Phase phase = Phase::forward;
  int64_t ns = 0;         // of the host
  int64_t device_ns = 0;  // 0 on the CPU
  uint64_t key = 0;
  uint64_t shape_key = 0;
  uint64_t sizes = 0;
  int64_t flops = 0;
  bool wrapper = false;  // only contains other ops: left out of the trace
  bool done = false;
  std::vector<StorageRef> inputs;
  std::vector<StorageId> outputs;
  std::vector<StorageId> writes;
};

struct LoggedStorage {
  int64_t bytes = 0;
  int64_t rounded = 0;
  bool resident = false;
  bool outside = false;  // not memory of the caching core: made before the session
  StorageKind kind = StorageKind::other;
  bool captured = false;    // created by a captured op
  bool replayable = false;  // all writers known and replayable
  std::string keep_reason;
  std::vector<OpId> writers;
};

class StepLog : public hooks::LedgerSink {
 public:
  // `memory`: whose blocks count; what is not its own is outside the allocator. `internal`:
  // stretches of Lowtide's own work that are open now (InternalScope); both outlive the log.
  StepLog(const hooks::TrainingMemory& memory, const std::atomic<int>& internal)
      : memory_(memory), internal_(internal) {}

  // Ledger sink. What is allocated inside `internal` stretches is left out.
  void on_alloc(const hooks::MemoryEvent& event) noexcept override;
  void on_free(const hooks::MemoryEvent& event) noexcept override;

  // `sizes`: hash of all tensor sizes among the arguments. -1 where an op of another thread is open
  // (a backward over several devices): a trace is a sequence, and that op's memory counts as what
  // happens meanwhile.
  [[nodiscard]] int32_t begin_op(const OpInfo& info, Phase phase, uint64_t sizes);
  // An open op turned out to be a wrapper of the ops inside it.
  void mark_wrapper(int32_t op);
  // An open op contains others but has work of its own, done after them: it begins here. Its new
  // id.
  int32_t begin_again(int32_t op);
  // An open op has failed.
  void abort_op();
  void end_op(int32_t op, int64_t ns, uint64_t key, uint64_t shape_key);
  // The op's work on the device lies between these.
  void add_device_time(int32_t op, c10::Event begin, c10::Event end);
  LoggedOp& op(int32_t i) { return ops_[static_cast<size_t>(i)]; }

  // The storage at an address; one not seen before is resident (alive when the step began).
  StorageId storage_at(const void* address, int64_t bytes, StorageKind kind_if_new);
  // A storage that an op has just made; memory that the ledger did not see counts from now on.
  StorageId created(const void* address, int64_t bytes);
  // Does the ledger report this block?
  [[nodiscard]] bool knows(const void* address);
  LoggedStorage& storage(StorageId sid) { return storages_[static_cast<size_t>(sid)]; }

  SaveId pack(StorageId sid, int32_t version);
  void unpack(SaveId save);
  void drop_save(SaveId save);
  void release(StorageId sid);
  void mark_evicted(StorageId sid);
  // Eviction took the storage's block away / replay gave it a new one.
  void unmap(const void* address);
  void remap(const void* address, StorageId sid);
  // The program's own free of a storage whose bytes were evicted at that time.
  void free_absent(StorageId sid);

  // REQUIRES: the device's work of the step is done.
  void finish(int64_t step_ns, int64_t resident_requested, int64_t resident_rounded);
  [[nodiscard]] int64_t step_ns() const { return step_ns_; }
  [[nodiscard]] bool complete() const { return complete_; }
  // Same ops in the same order with the same sizes: samples may be pooled.
  [[nodiscard]] uint64_t shape_hash() const;
  [[nodiscard]] bool had_evictions() const { return evictions_ > 0; }
  [[nodiscard]] size_t ops() const { return ops_.size(); }

  friend class TraceBuilder;

 private:
  void add_event(EventKind kind, int32_t id) { events_.push_back({kind, id}); }

  const hooks::TrainingMemory& memory_;
  const std::atomic<int>& internal_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::vector<LoggedOp> ops_;
  std::vector<LoggedStorage> storages_;
  std::vector<TraceSave> saves_;
  std::vector<char> evicted_;
  std::unordered_map<const void*, StorageId> at_;
  std::unordered_set<const void*> internal_blocks_;  // allocated or taken by replay and eviction
  struct DeviceTime {
    int32_t op;
    c10::Event begin, end;
  };
  std::vector<DeviceTime> device_times_;
  int32_t open_ops_ = 0;  // all of open_thread_
  std::thread::id open_thread_;
  int32_t next_unpack_ = 0;
  int64_t evictions_ = 0;
  int64_t step_ns_ = 0;
  int64_t resident_requested_ = 0;  // at the step's begin, all of it
  int64_t resident_rounded_ = 0;
  bool complete_ = false;
};

}  // namespace lowtide::runtime
