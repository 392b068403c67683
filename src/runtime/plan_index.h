// A plan as the running step needs it: by position of the forward op, with the check that the step
// is still the one that was planned.
//
// Immutable `PlanIndex` per plan; `PlanRun` is the cursor of one step. Thread safety: const access.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::runtime {

struct PlannedOp {
  uint64_t key = 0;
  uint64_t shape_key = 0;
  int64_t output_bytes = 0;
  OpId trace_op = kNone;
};

// Identity of a storage between steps and plans: what its creator is (its key covers everything it
// was computed from), where among the forward ops, which output.
[[nodiscard]] inline uint64_t creator_id(int32_t ordinal, int32_t output, uint64_t key) {
  return Hasher(key).add(ordinal).add(output).value();
}
// The same with its in-place writers: begins as the creator id, each writer's key is added.
[[nodiscard]] inline uint64_t extended_id(uint64_t id, uint64_t writer_key) {
  return Hasher(id).add(writer_key).value();
}

struct PlannedStorage {
  int32_t output = 0;
  Action action = Action::save;
  bool keep_after_recompute = true;
  StorageId storage = kNone;
  uint64_t creator = 0;  // creator_id
  uint64_t recipe = 0;   // with all writers
};

class PlanIndex {
 public:
  PlanIndex(const Trace& trace, const std::vector<Decision>& decisions);

  [[nodiscard]] size_t size() const { return ops_.size(); }
  [[nodiscard]] const PlannedOp& op(size_t ordinal) const { return ops_[ordinal]; }
  [[nodiscard]] const std::string& op_name(size_t ordinal) const { return names_[ordinal]; }
  // Decision for output number `output` of the op; null = save.
  [[nodiscard]] const PlannedStorage* decision(int32_t ordinal, int32_t output) const;
  [[nodiscard]] const std::vector<std::pair<int32_t, PlannedStorage>>& drops() const {
    return drops_;
  }

 private:
  std::vector<PlannedOp> ops_;
  std::vector<std::string> names_;
  std::vector<std::vector<PlannedStorage>> by_op_;
  std::vector<std::pair<int32_t, PlannedStorage>> drops_;  // (ordinal, decision)
};

// Where a step stands in its plan.
struct PlanRun {
  std::shared_ptr<const PlanIndex> index;  // null = no plan
  bool diverged = false;
  bool strict = false;        // divergence is an error (a plan given by hand)
  bool sizes_differ = false;  // same structure, other sizes
  int64_t planned_bytes = 0;  // output bytes of the first ops, planned and seen
  int64_t seen_bytes = 0;
  int32_t diverged_at = -1;
  std::string strict_error;  // the text thrown by a strict divergence

  [[nodiscard]] bool active() const { return index != nullptr && !diverged; }
};

}  // namespace lowtide::runtime
