#include "planner/eager_steps.h"

#include <algorithm>

#include "core/index.h"

namespace lowtide::planner {

EagerSteps::EagerSteps(const Problem& problem) : problem_(problem) {
  const Trace& trace = problem.trace();
  std::vector<std::vector<Event>> events(trace.storages.size());
  std::vector<std::vector<int32_t>> writes(trace.storages.size());
  for (int32_t i = 0; i < count(); ++i) {
    const SimStep& step = problem.steps()[at(i)];
    switch (step.kind) {
      case SimStep::Kind::block:
        break;
      case SimStep::Kind::op_end:
        for (const StorageId s : problem.writes(step.id)) writes[at(s)].push_back(i);
        break;
      case SimStep::Kind::alloc:
      case SimStep::Kind::free:
      case SimStep::Kind::release:
        events[at(step.id)].push_back({step.kind, i});
        break;
      case SimStep::Kind::pack:
      case SimStep::Kind::unpack:
      case SimStep::Kind::drop_save:
        events[at(trace.saves[at(step.id)].storage)].push_back({step.kind, i});
        break;
    }
  }
  for (size_t s = 0; s < events.size(); ++s) {
    events_.add_row(events[s]);
    writes_.add_row(writes[s]);
  }
}

int32_t EagerSteps::content(StorageId s, int32_t step) const {
  const auto writes = writes_[s];
  return static_cast<int32_t>(std::lower_bound(writes.begin(), writes.end(), step) -
                              writes.begin());
}

int32_t EagerSteps::saves(StorageId s, int32_t step) const {
  int32_t saves = 0;
  for (const Event& event : events_[s]) {
    if (event.step >= step) break;
    saves += event.kind == SimStep::Kind::pack;
    saves -= event.kind == SimStep::Kind::drop_save;
  }
  return saves;
}

}  // namespace lowtide::planner
