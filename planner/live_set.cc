#include "planner/live_set.h"

#include <algorithm>

#include "core/index.h"

namespace lowtide::planner {
std::vector<StorageId> live_set(const std::vector<SimulatedMemoryEvent>& events, size_t count,
                                const std::vector<StorageId>& block_storage, const Trace& trace) {
  std::vector<char> alive(block_storage.size());
  for (size_t i = 0; i < count; ++i) alive[at(events[i].block)] = events[i].bytes > 0;
  std::vector<StorageId> live;
  for (size_t block = 0; block < alive.size(); ++block) {
    if (alive[block]) live.push_back(block_storage[block]);
  }
  std::stable_sort(live.begin(), live.end(), [&](StorageId a, StorageId b) {
    return trace.storages[at(a)].bytes > trace.storages[at(b)].bytes;
  });
  return live;
}

}  // namespace lowtide::planner
