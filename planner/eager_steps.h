// The steps of an eager trace (Problem::steps) indexed by storage: what happens to each tracked
// storage whatever the plan. Holds a reference to the problem, which must outlive it. Const after
// construction: thread-safe. A step index is a position in Problem::steps().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem.h"
#include "planner/rows.h"

namespace lowtide::planner {

class EagerSteps {
 public:
  struct Event {  // of one storage
    SimStep::Kind kind = SimStep::Kind::alloc;
    int32_t step = 0;
  };

  explicit EagerSteps(const Problem& problem);

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(problem_.steps().size()); }
  // Allocs, frees, packs, unpacks, dropped saves and releases of a tracked storage, in order.
  [[nodiscard]] std::span<const Event> events(StorageId s) const { return events_[s]; }
  // Writers that have run before the step.
  [[nodiscard]] int32_t content(StorageId s, int32_t step) const;
  // Saves that own the storage before the step.
  [[nodiscard]] int32_t saves(StorageId s, int32_t step) const;

 private:
  const Problem& problem_;
  Rows<Event> events_;
  Rows<int32_t> writes_;  // steps
};

}  // namespace lowtide::planner
