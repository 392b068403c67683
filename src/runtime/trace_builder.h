// Makes a trace of one or more logs of the same step.
//
// The last log gives ops, storages and events; op times are the medians over all logs that ran the
// same ops with the same sizes, and over equal op instances within them (layers of a network).
// What may be dropped is decided here: complete chains of replayable writers whose opaque
// ancestors, if any, outlive the last use. Pure; no torch call.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/trace.h"
#include "runtime/step_log.h"

namespace lowtide::runtime {

class TraceBuilder {
 public:
  // `logs`: not empty, finished. `round`: how the allocator rounds a request (bytes).
  TraceBuilder(std::vector<const StepLog*> logs, std::function<int64_t(int64_t)> round);
  [[nodiscard]] Trace build(TraceSettings settings);

 private:
  void map_ops();
  void pool_times();
  void add_storages();
  void add_saves_and_events();
  void classify();
  void decide_recomputable();
  [[nodiscard]] std::string why_not_recomputable(StorageId sid,
                                                 const std::vector<int64_t>& freed_at,
                                                 const std::vector<int64_t>& last_unpack) const;
  [[nodiscard]] bool opaque_at(StorageRef ref) const;

  std::vector<const StepLog*> logs_;
  std::function<int64_t(int64_t)> round_;
  const StepLog* last_;
  Trace trace_;
  std::vector<OpId> op_of_;       // log op -> trace op, kNone = left out
  std::vector<OpId> ops_before_;  // log op -> trace ops before it
};

}  // namespace lowtide::runtime
