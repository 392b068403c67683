// Where replays stand among the moments of a relaxation: a slot is preceded by one moment for each
// op that it may replay, in the order of the forward. Not thread-safe while filled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/replay_windows.h"

namespace lowtide::planner {

struct ReplayMoments {
  std::vector<std::vector<OpId>> chain;  // by slot: ops it may replay, rising
  std::vector<int32_t> moment;           // of each slot

  void fill_chains(const ReplayWindows& windows, size_t ops, size_t slots) {
    chain.resize(slots);
    for (OpId op = 0; static_cast<size_t>(op) < ops; ++op) {
      for (const int32_t slot : windows.slots(op)) chain[static_cast<size_t>(slot)].push_back(op);
    }
  }
  [[nodiscard]] int32_t of(int32_t slot) const { return moment[static_cast<size_t>(slot)]; }
  [[nodiscard]] bool replays(int32_t slot, OpId op) const {
    const auto& ops = chain[static_cast<size_t>(slot)];
    return std::binary_search(ops.begin(), ops.end(), op);
  }
  // The moment of an op in a slot's chain; the slot's own where the op is not in it.
  [[nodiscard]] int32_t replay(int32_t slot, OpId op) const {
    const auto& ops = chain[static_cast<size_t>(slot)];
    const auto found = std::lower_bound(ops.begin(), ops.end(), op);
    if (found == ops.end() || *found != op) return of(slot);
    return of(slot) - static_cast<int32_t>(ops.end() - found);
  }
  // From here on the slot has what the op makes.
  [[nodiscard]] int32_t after_replay(int32_t slot, OpId op) const {
    return std::min(replay(slot, op) + 1, of(slot));
  }
};

}  // namespace lowtide::planner
