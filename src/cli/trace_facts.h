// What a reader wants to know about a trace, counted once for the text and the JSON form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"

namespace lowtide::cli {

struct OpGroup {  // all ops of one name
  std::string name;
  int64_t count = 0;
  int64_t time_ns = 0;
};

struct KeepGroup {  // saved storages that must be kept, by reason
  std::string reason;
  int64_t count = 0;
  int64_t bytes = 0;
};

struct TraceFacts {
  int64_t ops_by_phase[4] = {};  // forward, backward, optimizer, other
  int64_t time_ns = 0;           // of all ops
  int64_t unmeasured_ops = 0;
  int64_t saved_storages = 0;
  int64_t saved_bytes = 0;
  int64_t droppable_storages = 0;
  int64_t droppable_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t peak_requested_bytes = 0;     // derived from the events, as a planner sees the step
  std::vector<StorageId> live_at_peak;  // largest first
  std::vector<OpGroup> slowest;         // by time, all groups
  std::vector<KeepGroup> kept;          // by bytes
};

[[nodiscard]] TraceFacts facts_of(const Trace& trace);

// "activation of aten::mm (forward op 31)".
[[nodiscard]] std::string origin_of(const Trace& trace, StorageId id);
// What recomputing the storage alone takes: its writers, ns.
[[nodiscard]] int64_t recipe_ns(const Trace& trace, StorageId id);

}  // namespace lowtide::cli
