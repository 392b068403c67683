#include "runtime/replay_times.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/hash.h"
#include "profiler/cpu_clock.h"

namespace lowtide::runtime {
namespace {

// Equal for ops that do the same work: the same kernel on tensors of the same sizes.
uint64_t instance_of(const Trace& trace, const TraceOp& op) {
  Hasher hasher;
  hasher.add(std::string_view(op.name)).add(op.shape_key);
  for (const StorageRef& input : op.inputs) {
    hasher.add(trace.storages[static_cast<size_t>(input.storage)].bytes);
  }
  for (const StorageId output : op.outputs) {
    hasher.add(trace.storages[static_cast<size_t>(output)].bytes);
  }
  return hasher.value();
}

}  // namespace

void ReplayTimes::add(int32_t ordinal, int64_t ns) {
  const auto index = static_cast<size_t>(ordinal);
  if (samples_.size() <= index) {
    samples_.resize(index + 1);
  }
  samples_[index].push_back(std::max<int64_t>(ns, 1));
}

bool ReplayTimes::price(Trace& trace, const PlanIndex& index) const {
  std::map<uint64_t, std::vector<int64_t>> pooled;
  const size_t count = std::min(samples_.size(), index.size());
  const auto op_of = [&](size_t ordinal) -> TraceOp& {
    return trace.ops[static_cast<size_t>(index.op(ordinal).trace_op)];
  };
  for (size_t i = 0; i < count; ++i) {
    if (!samples_[i].empty()) {
      std::vector<int64_t>& all = pooled[instance_of(trace, op_of(i))];
      all.insert(all.end(), samples_[i].begin(), samples_[i].end());
    }
  }
  if (pooled.empty()) {
    return false;
  }
  for (size_t i = 0; i < index.size(); ++i) {
    TraceOp& op = op_of(i);
    const auto found = pooled.find(instance_of(trace, op));
    if (found != pooled.end()) {
      op.replay_ns = profiler::pool(found->second).median_ns;
    }
  }
  return true;
}

}  // namespace lowtide::runtime
