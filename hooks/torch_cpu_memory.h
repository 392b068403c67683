// The memory of a session on the CPU: the caching core as torch's CPU allocator. A session's only;
// rules in training_memory.h and torch_cpu_allocator.h.
#pragma once

#include <memory>

#include "hooks/training_memory.h"

namespace lowtide::hooks {

[[nodiscard]] std::unique_ptr<TrainingMemory> make_torch_cpu_memory();

}  // namespace lowtide::hooks
