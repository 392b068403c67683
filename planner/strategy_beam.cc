// Beam search over sets of dropped saves: from the plain step on, each of the best 32 sets is
// extended by one more drop in several ways, and of all extensions the 32 are kept that pay the
// least time for the memory they take away, memory being bytes times the allocations that they are
// held over. Extensions are tried in the order of what a drop gains alone. It widens the greedy
// choice but never takes a drop back.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "planner/problem.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

constexpr size_t kWidth = 32;
constexpr size_t kExtensions = 6;             // of a set
constexpr int64_t kBeamWork = 1'200'000'000;  // Simulator::work; a few seconds on one core

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Drops {
  std::vector<uint32_t> items;  // indices into the order of candidates, rising
  int64_t cost_ns = 0;
  int64_t area = 0;  // live bytes summed over the allocations of the step
};

class Beam {
 public:
  Beam(const Simulator& simulator, Archive& archive)
      : simulator_(simulator), archive_(archive), work_end_(simulator.work() + kBeamWork) {
    order_ = simulator.problem().candidates();
    plain_ = evaluate({});
    std::vector<std::pair<double, StorageId>> alone;
    for (uint32_t i = 0; i < order_.size(); ++i) {
      // Out of work on a very long trace: the rest come last.
      alone.emplace_back(exhausted() ? kNever : price(evaluate({i})), order_[i]);
    }
    std::stable_sort(alone.begin(), alone.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < alone.size(); ++i) order_[i] = alone[i].second;
  }

  void run() {
    std::vector<Drops> beam = {plain_};
    while (!beam.empty() && !exhausted()) {
      std::vector<Drops> next;
      std::set<std::vector<uint32_t>> seen;
      for (const Drops& drops : beam) {
        for (std::vector<uint32_t>& extended : extensions(drops)) {
          if (seen.insert(extended).second) next.push_back(evaluate(std::move(extended)));
        }
      }
      std::stable_sort(next.begin(), next.end(),
                       [&](const Drops& a, const Drops& b) { return price(a) < price(b); });
      if (next.size() > kWidth) next.resize(kWidth);
      beam = std::move(next);
    }
  }

 private:
  Drops evaluate(std::vector<uint32_t> items) {
    DecisionTable table(simulator_.trace().storages.size());
    for (const uint32_t i : items) table.action[static_cast<size_t>(order_[i])] = Action::drop;
    const SimulationResult result = simulator_.simulate(table, {.level_bytes = 0});
    archive_.offer(table, result, "beam");
    return {std::move(items), result.recompute_ns, result.excess_bytes};
  }

  // Time paid for each unit of memory taken away; a set that takes none away is worth nothing.
  [[nodiscard]] double price(const Drops& drops) const {
    const int64_t freed = plain_.area - drops.area;
    if (freed <= 0) return kNever;
    return static_cast<double>(drops.cost_ns) / static_cast<double>(freed);
  }

  [[nodiscard]] std::vector<std::vector<uint32_t>> extensions(const Drops& drops) const {
    std::vector<std::vector<uint32_t>> result;
    for (uint32_t i = 0; i < order_.size() && result.size() < kExtensions; ++i) {
      const auto place = std::lower_bound(drops.items.begin(), drops.items.end(), i);
      if (place != drops.items.end() && *place == i) continue;
      std::vector<uint32_t> extended = drops.items;
      extended.insert(extended.begin() + (place - drops.items.begin()), i);
      result.push_back(std::move(extended));
    }
    return result;
  }

  [[nodiscard]] bool exhausted() const { return simulator_.work() >= work_end_; }

  const Simulator& simulator_;
  Archive& archive_;
  const int64_t work_end_;
  std::vector<StorageId> order_;
  Drops plain_;
};

}  // namespace

void explore_beam(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  Beam(simulator, archive).run();
}

}  // namespace lowtide::planner
