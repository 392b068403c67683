#include "runtime/plan_index.h"

#include "core/error.h"
#include "core/hash.h"

namespace lowtide::runtime {

PlanIndex::PlanIndex(const Trace& trace, const std::vector<Decision>& decisions) {
  std::vector<int32_t> ordinal_of(trace.ops.size(), -1);
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const TraceOp& op = trace.ops[i];
    if (op.phase != Phase::forward) {
      continue;
    }
    ordinal_of[i] = static_cast<int32_t>(ops_.size());
    PlannedOp planned;
    planned.key = op.key;
    planned.shape_key = op.shape_key;
    planned.trace_op = static_cast<OpId>(i);
    for (const StorageId output : op.outputs) {
      planned.output_bytes += trace.storages[static_cast<size_t>(output)].bytes;
    }
    ops_.push_back(planned);
    names_.push_back(op.name);
  }
  by_op_.resize(ops_.size());
  for (const Decision& decision : decisions) {
    if (decision.action == Action::save) {
      continue;
    }
    const TraceStorage& storage = trace.storages.at(static_cast<size_t>(decision.storage));
    LOWTIDE_CHECK(!storage.writers.empty(), "a plan drops a storage that no op created");
    const OpId creator = storage.writers.front();
    const int32_t ordinal = ordinal_of[static_cast<size_t>(creator)];
    LOWTIDE_CHECK(ordinal >= 0, "a plan drops a storage that no forward op created");
    const std::vector<StorageId>& outputs = trace.ops[static_cast<size_t>(creator)].outputs;
    PlannedStorage planned;
    planned.action = decision.action;
    planned.keep_after_recompute = decision.keep_after_recompute;
    planned.storage = decision.storage;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == decision.storage) {
        planned.output = static_cast<int32_t>(i);
      }
    }
    planned.creator =
        creator_id(ordinal, planned.output, trace.ops[static_cast<size_t>(creator)].key);
    planned.recipe = planned.creator;
    for (size_t w = 1; w < storage.writers.size(); ++w) {
      planned.recipe =
          extended_id(planned.recipe, trace.ops[static_cast<size_t>(storage.writers[w])].key);
    }
    by_op_[static_cast<size_t>(ordinal)].push_back(planned);
    drops_.emplace_back(ordinal, planned);
  }
}

const PlannedStorage* PlanIndex::decision(int32_t ordinal, int32_t output) const {
  for (const PlannedStorage& planned : by_op_[static_cast<size_t>(ordinal)]) {
    if (planned.output == output) {
      return &planned;
    }
  }
  return nullptr;
}

}  // namespace lowtide::runtime
