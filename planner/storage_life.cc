#include "planner/storage_life.h"

namespace lowtide::planner {

StorageLife live_dropped(const Trace& trace, const std::vector<int32_t>& events, bool keep) {
  StorageLife life;
  bool plain = false;  // the plain step has it
  bool present = false;
  bool used = true;
  bool rebuilt = false;
  bool away = false;  // a gap is open
  int32_t saves = 0;
  const auto close = [&](int32_t event, bool by_rebuild) {
    if (!away) return;
    away = false;
    life.gaps.back().end = event;
    life.gaps.back().rebuilt = by_rebuild;
  };
  for (const int32_t e : events) {
    const TraceEvent& event = trace.events[static_cast<size_t>(e)];
    switch (event.kind) {
      case EventKind::alloc:
        plain = present = true;
        break;
      case EventKind::free:
        close(e, false);
        plain = present = false;
        break;
      case EventKind::pack:
        ++saves;
        break;
      case EventKind::unpack:
        if (!present) {
          const TraceSave& save = trace.saves[static_cast<size_t>(event.id)];
          life.triggers.push_back({e, save.version});
          close(e, true);
          present = rebuilt = true;
        }
        used = true;
        break;
      case EventKind::drop_save:
        --saves;
        break;
      case EventKind::release:
        used = false;
        break;
      case EventKind::op_begin:
      case EventKind::op_end:
        break;
    }
    if (saves == 0 && life.triggers.empty()) life.saved_since = e + 1;
    const bool may_die = event.kind == EventKind::drop_save || event.kind == EventKind::release;
    if (may_die && present && !used && !(rebuilt && keep && saves > 0)) {
      present = false;
      if (plain) {
        away = true;
        life.gaps.push_back({e, e, false});
      }
    }
  }
  close(static_cast<int32_t>(trace.events.size()), false);
  return life;
}

}  // namespace lowtide::planner
