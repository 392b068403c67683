// The memory budget of torch.compile (torch/_functorch, `dp_knapsack`): which saves to keep is a
// 0/1 knapsack over the sum of their bytes, worth their own time each. The budget is a ratio of
// that sum; peak memory, and that recomputing one value may need another dropped one, are not seen.
// As there: items by falling size, sizes normalized and rounded to 1/10,000, times in single
// precision. `knapsack` takes measured times (torch: "profile"), `knapsack:flops` FLOPs (torch's
// default), at least 1 for each. What torch does around it belongs to its graphs (min-cut before
// and after, ratios that cheaper cuts meet already) and is left out: the candidates are the saves
// of the trace.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/problem.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

constexpr int kUnits = 10000;  // torch's scale of memory
constexpr int kRatios = 64;
// A bit for each item and unit: 128 MiB at most.
constexpr size_t kMaxItems = size_t{1} << 30;

struct Item {
  StorageId storage = kNone;
  int64_t bytes = 0;
  float worth = 0;
};

// The 0/1 knapsack for all capacities up to one at once.
class Knapsack {
 public:
  Knapsack(const std::vector<Item>& items, int64_t total_bytes) {
    std::vector<float> best(kUnits + 1);
    for (const Item& item : items) {
      const double share = static_cast<double>(item.bytes) / static_cast<double>(total_bytes);
      const auto units = static_cast<size_t>(std::nearbyint(share * kUnits));
      units_.push_back(units);
      auto& taken = taken_.emplace_back(kUnits + 1);
      for (size_t room = kUnits + 1; room-- > units;) {
        const float with = best[room - units] + item.worth;
        if (with > best[room]) {
          best[room] = with;
          taken[room] = true;
        }
      }
    }
  }

  // Whether each item is saved.
  [[nodiscard]] std::vector<bool> saved(size_t capacity) const {
    std::vector<bool> result(units_.size());
    for (size_t i = units_.size(); i-- > 0;) {
      if (!taken_[i][capacity]) continue;
      result[i] = true;
      capacity -= units_[i];
    }
    return result;
  }

 private:
  std::vector<size_t> units_;
  std::vector<std::vector<bool>> taken_;  // per item and room
};

std::vector<Item> items_of(const Problem& problem, bool flops) {
  std::vector<Item> items;
  for (const StorageId s : problem.candidates()) {
    Item item{s, problem.size(s).requested, 0};
    for (const OpId writer : problem.trace().storages[static_cast<size_t>(s)].writers) {
      const TraceOp& op = problem.trace().ops[static_cast<size_t>(writer)];
      item.worth += static_cast<float>(flops ? std::max<int64_t>(op.flops, 1) : op.recompute_ns());
    }
    items.push_back(item);
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  return items;
}

}  // namespace

void explore_knapsack(const Simulator& simulator, std::string_view argument, Archive& archive) {
  const bool flops = argument == "flops";
  const std::string name = flops ? "knapsack:flops" : "knapsack";
  const Trace& trace = simulator.trace();
  if (!argument.empty() && !flops) {
    throw InvalidInput("strategy \"knapsack:" + std::string(argument) +
                       "\" is not known; use \"knapsack\" (measured times) or \"knapsack:flops\"");
  }
  if (flops && std::none_of(trace.ops.begin(), trace.ops.end(),
                            [](const TraceOp& op) { return op.flops > 0; })) {
    throw InvalidInput(
        "strategy \"knapsack:flops\" needs a trace that has FLOPs; use \"knapsack\"");
  }
  const std::vector<Item> items = items_of(simulator.problem(), flops);
  if (items.size() * kUnits > kMaxItems) {
    throw InvalidInput("strategy \"" + name + "\" takes up to " +
                       std::to_string(kMaxItems / kUnits) + " saves, this trace has " +
                       std::to_string(items.size()) + "; use \"greedy\"");
  }
  const int64_t total =
      std::accumulate(items.begin(), items.end(), int64_t{0},
                      [](int64_t sum, const Item& item) { return sum + item.bytes; });
  if (total == 0) return;
  const Knapsack knapsack(items, total);
  for (int ratio = 0; ratio <= kRatios; ++ratio) {
    const std::vector<bool> saved = knapsack.saved(static_cast<size_t>(kUnits * ratio / kRatios));
    DecisionTable table(trace.storages.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (!saved[i]) table.action[static_cast<size_t>(items[i].storage)] = Action::drop;
    }
    archive.offer(table, simulator.simulate(table), name);
  }
}

}  // namespace lowtide::planner
