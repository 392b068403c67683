#include "planner/archive.h"

#include <iterator>
#include <utility>

namespace lowtide::planner {

// Equal on both counts is dominated too: the first one found stays.
bool Archive::wants(int64_t peak_rounded_bytes, int64_t recompute_ns) const {
  const Entry* best = cheapest(peak_rounded_bytes);
  return best == nullptr || best->recompute_ns > recompute_ns;
}

bool Archive::offer(const DecisionTable& table, int64_t peak_rounded_bytes, int64_t recompute_ns,
                    std::string_view strategy) {
  if (!wants(peak_rounded_bytes, recompute_ns)) return false;
  auto worse = entries_.lower_bound(peak_rounded_bytes);
  while (worse != entries_.end() && worse->second.recompute_ns >= recompute_ns) {
    worse = entries_.erase(worse);
  }
  entries_.emplace_hint(worse, peak_rounded_bytes,
                        Entry{recompute_ns, table.to_decisions(), std::string(strategy)});
  return true;
}

const Archive::Entry* Archive::cheapest(int64_t peak_rounded_bytes) const {
  const auto above = entries_.upper_bound(peak_rounded_bytes);
  return above == entries_.begin() ? nullptr : &std::prev(above)->second;
}

}  // namespace lowtide::planner
