// When each op may be replayed: its slots, the points of the step (rising keys) at which something
// that needs it may be rebuilt. Only the latest `width` of them are told apart: a replay at an
// earlier one is taken to happen at the first that is left, which delays it, and so never makes a
// relaxation dearer. For each op and slot left there is a variable: "replayed by then".
//
// Filled from the last op to the first, readers before writers. Not thread-safe while filled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/trace.h"
#include "planner/relaxation.h"

namespace lowtide::planner {

class ReplayWindows {
 public:
  ReplayWindows(size_t ops, size_t width) : width_(width), ops_(ops) {}

  // Before `close(op)`, in any order, repeats allowed.
  void add(OpId op, int32_t slot) { ops_[index(op)].slots.push_back(slot); }
  // Whenever `reader`, closed before, is replayed in a slot that `may_miss` does not rule out,
  // `writer` may have to be.
  template <class Predicate>
  void inherit(OpId writer, OpId reader, Predicate may_miss) {
    const Op& from = ops_[index(reader)];
    Op& to = ops_[index(writer)];
    for (const int32_t slot : from.slots) {
      if (may_miss(slot)) to.slots.push_back(slot);
    }
    to.first = std::min(to.first, from.first);
    to.complete_since = std::max(to.complete_since, from.complete_since);
  }
  void close(OpId op);
  // Variables of every op, each implying the next. The last one costs the op's time.
  void add_variables(Relaxation& relaxation, std::span<const int64_t> cost_ns);

  [[nodiscard]] std::span<const int32_t> slots(OpId op) const { return ops_[index(op)].slots; }
  // The earliest, whether told apart or not; INT32_MAX where the op is never replayed.
  [[nodiscard]] int32_t first(OpId op) const { return ops_[index(op)].first; }
  // Earlier slots than those told apart may have been left out.
  [[nodiscard]] bool truncated(OpId op) const { return ops_[index(op)].complete_since > 0; }
  [[nodiscard]] int32_t variable(OpId op, size_t slot_index) const {
    return ops_[index(op)].variable + static_cast<int32_t>(slot_index);
  }
  // Of the first slot >= this one; kNone where there is none.
  [[nodiscard]] int32_t variable_from(OpId op, int32_t slot) const;
  // Of the last slot < this one.
  [[nodiscard]] int32_t variable_before(OpId op, int32_t slot) const;
  // `bytes` more in [begin, end) while the op is replayed in exactly its i-th slot.
  void add_span(Relaxation& relaxation, OpId op, size_t i, int32_t begin, int32_t end,
                int64_t bytes) const;
  // "Replayed at all".
  [[nodiscard]] int32_t last_variable(OpId op) const { return variable(op, slots(op).size() - 1); }

 private:
  struct Op {
    std::vector<int32_t> slots;
    int32_t first = INT32_MAX;
    int32_t complete_since = 0;
    int32_t variable = kNone;  // of the first slot
  };
  static size_t index(OpId op) { return static_cast<size_t>(op); }

  size_t width_;
  std::vector<Op> ops_;
};

}  // namespace lowtide::planner
