// Equal layers: which storages play the same part in them. Found by hashing what lies around each
// storage: the ops that make and read it, and what those read and make in turn. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "core/trace.h"

namespace lowtide::planner {

// Groups of two and more positions in `order` whose storages have equal surroundings, each group in
// the order given.
[[nodiscard]] std::vector<std::vector<size_t>> alike_storages(const Trace& trace,
                                                              const std::vector<StorageId>& order);

}  // namespace lowtide::planner
