// Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost": about sqrt(n) segments of a
// chain of n blocks, each run again from its input. As in torch.utils.checkpoint_sequential the
// last segment is not recomputed: the backward starts there.
#include <cmath>

#include "planner/block_chain.h"
#include "planner/strategy.h"

namespace lowtide::planner {

void explore_sqrt(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  const BlockChain chain(simulator, "sqrt");
  const std::vector<size_t>& blocks = chain.marked();
  const auto segments =
      static_cast<size_t>(std::lround(std::ceil(std::sqrt(static_cast<double>(blocks.size())))));
  const size_t size = blocks.size() / segments;
  BlockSchedule schedule(chain);
  for (size_t segment = 0; segment + 1 < segments; ++segment) {
    const size_t first = segment * size;
    for (size_t i = first; i < first + size; ++i) schedule.set_interior(blocks[i], 1);
    schedule.checkpoint(blocks[first], blocks[first + size - 1] + 1, 0);
  }
  schedule.offer(simulator, "sqrt", archive);
}

}  // namespace lowtide::planner
