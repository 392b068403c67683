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

void ReplayTimes::add_exchanges(int64_t count, int64_t ns) {
  exchanges_ += count;
  exchange_ns_ += ns;
}

Prices ReplayTimes::prices(const Trace& trace) const {
  const PlanIndex index(trace, {});
  const auto op_of = [&](size_t ordinal) {
    return static_cast<size_t>(index.op(ordinal).trace_op);
  };
  std::map<uint64_t, std::vector<int64_t>> pooled;
  for (size_t i = 0; i < std::min(samples_.size(), index.size()); ++i) {
    if (!samples_[i].empty()) {
      std::vector<int64_t>& all = pooled[instance_of(trace, trace.ops[op_of(i)])];
      all.insert(all.end(), samples_[i].begin(), samples_[i].end());
    }
  }
  if (pooled.empty()) {
    return {};
  }
  Prices prices{.replay_ns = std::vector<int64_t>(trace.ops.size(), 0),
                .exchange_ns = exchanges_ > 0 ? exchange_ns_ / exchanges_ : 0};
  for (size_t i = 0; i < index.size(); ++i) {
    const auto found = pooled.find(instance_of(trace, trace.ops[op_of(i)]));
    if (found != pooled.end()) {
      prices.replay_ns[op_of(i)] = profiler::pool(found->second).median_ns;
    }
  }
  return prices;
}

}  // namespace lowtide::runtime
