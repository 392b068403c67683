// What one dropped storage does on its own in an eager trace (rules: simulator.h): when it is away
// though the plain step has it, and which unpacks have to rebuild it. A replay for something else
// may bring it back sooner, never later: it is away at these times at most, and rebuilt for its own
// sake by these unpacks at most.
#pragma once

#include <cstdint>
#include <vector>

#include "core/trace.h"

namespace lowtide::planner {

struct StorageLife {
  struct Gap {
    int32_t begin = 0;  // event after which it is away
    int32_t end = 0;    // event that rebuilds or frees it
    bool rebuilt = false;
  };
  struct Trigger {
    int32_t event = 0;
    int32_t version = 0;  // writers to replay
  };
  std::vector<Gap> gaps;
  std::vector<Trigger> triggers;
  // From this event to the first trigger it has saves that would keep a rebuilt value.
  int32_t saved_since = 0;
};

// `events`: indices of the storage's own events and those of its saves, rising.
[[nodiscard]] StorageLife live_dropped(const Trace& trace, const std::vector<int32_t>& events,
                                       bool keep);

}  // namespace lowtide::planner
