#include "planner/replay_windows.h"

#include <algorithm>

namespace lowtide::planner {

void ReplayWindows::close(OpId op) {
  Op& closed = ops_[index(op)];
  auto& slots = closed.slots;
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  if (!slots.empty()) closed.first = std::min(closed.first, slots.front());
  if (slots.size() > width_) {
    closed.complete_since = std::max(closed.complete_since, slots[slots.size() - width_]);
  }
  slots.erase(slots.begin(), std::lower_bound(slots.begin(), slots.end(), closed.complete_since));
}

void ReplayWindows::add_variables(Relaxation& relaxation, std::span<const int64_t> cost_ns) {
  for (size_t o = 0; o < ops_.size(); ++o) {
    Op& op = ops_[o];
    for (size_t i = 0; i < op.slots.size(); ++i) {
      const bool last = i + 1 == op.slots.size();
      const int32_t variable = relaxation.add_variable(last ? cost_ns[o] : 0);
      if (i == 0) op.variable = variable;
      if (i > 0) relaxation.add_implication(variable - 1, variable);
    }
  }
}

void ReplayWindows::add_span(Relaxation& relaxation, OpId op, size_t i, int32_t begin, int32_t end,
                             int64_t bytes) const {
  relaxation.add_span(variable(op, i), begin, end, bytes);
  if (i > 0) relaxation.add_span(variable(op, i - 1), begin, end, -bytes);
}

int32_t ReplayWindows::variable_from(OpId op, int32_t slot) const {
  const auto& slots = ops_[index(op)].slots;
  const auto found = std::lower_bound(slots.begin(), slots.end(), slot);
  return found == slots.end() ? kNone : variable(op, static_cast<size_t>(found - slots.begin()));
}

int32_t ReplayWindows::variable_before(OpId op, int32_t slot) const {
  const auto& slots = ops_[index(op)].slots;
  const auto found = std::lower_bound(slots.begin(), slots.end(), slot);
  return found == slots.begin() ? kNone
                                : variable(op, static_cast<size_t>(found - slots.begin()) - 1);
}

}  // namespace lowtide::planner
