// Which storages a recorded sequence of memory events leaves alive. Pure; units: bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "core/trace.h"
#include "planner/simulator.h"

namespace lowtide::planner {

// Storages alive once the first `count` memory events have happened, largest first.
// `block_storage[b]` is the storage behind block b.
[[nodiscard]] std::vector<StorageId> live_set(const std::vector<SimulatedMemoryEvent>& events,
                                              size_t count,
                                              const std::vector<StorageId>& block_storage,
                                              const Trace& trace);

}  // namespace lowtide::planner
