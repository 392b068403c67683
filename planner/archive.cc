#include "planner/archive.h"

#include <iterator>
#include <utility>

namespace lowtide::planner {

bool Archive::offer(const DecisionTable& table, const SimulationResult& result,
                    std::string_view strategy) {
  // Equal on both counts is dominated too: the first one found stays.
  const auto above = entries_.upper_bound(result.peak_rounded_bytes);
  if (above != entries_.begin() && std::prev(above)->second.recompute_ns <= result.recompute_ns) {
    return false;
  }
  auto worse = entries_.lower_bound(result.peak_rounded_bytes);
  while (worse != entries_.end() && worse->second.recompute_ns >= result.recompute_ns) {
    worse = entries_.erase(worse);
  }
  entries_.emplace_hint(worse, result.peak_rounded_bytes,
                        Entry{result.recompute_ns, table.to_decisions(), std::string(strategy)});
  return true;
}

const Archive::Entry* Archive::cheapest(int64_t peak_rounded_bytes) const {
  const auto above = entries_.upper_bound(peak_rounded_bytes);
  return above == entries_.begin() ? nullptr : &std::prev(above)->second;
}

}  // namespace lowtide::planner
