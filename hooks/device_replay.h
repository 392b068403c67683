// What an allocation sequence reserves on a GPU: as reserved_replay.h, through the device core,
// whose layout is that of torch's native allocator.
//
// Pure, deterministic, thread-safe. Throws InvalidInput as reserved_replay.h says.
#pragma once

#include <span>
#include <vector>

#include "hooks/reserved_replay.h"

namespace lowtide::hooks {

// One way to hold the step: with everything cached that it frees, once all steps are alike, from a
// device that held nothing else. Nothing is exchanged then.
[[nodiscard]] std::vector<ReplayHold> replay_device_holds(std::span<const ReplayEvent> events);

}  // namespace lowtide::hooks
