// Recursive checkpoints (Chen et al. 2016, section 4.3): a run of blocks is cut in the middle, what
// crosses the cut is stored, the second half is treated in the same way at once, the first half
// when the backward comes to it. O(log n) stored values and O(n log n) forward work; cutting less
// deep costs less work, so every depth is tried.
#include "planner/block_chain.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

void cut(const std::vector<size_t>& blocks, size_t begin, size_t end, int level, int depth,
         BlockSchedule& schedule) {
  if (end - begin == 1 || depth == 0) {
    for (size_t i = begin; i < end; ++i) schedule.set_interior(blocks[i], level);
    return;
  }
  const size_t middle = begin + (end - begin) / 2;
  schedule.checkpoint(blocks[begin], blocks[middle - 1] + 1, level);
  schedule.checkpoint(blocks[middle], blocks[end - 1] + 1, level);
  cut(blocks, begin, middle, level + 1, depth - 1, schedule);
  cut(blocks, middle, end, level, depth - 1, schedule);
}

}  // namespace

void explore_nested(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  const BlockChain chain(simulator, "nested");
  const std::vector<size_t>& blocks = chain.marked();
  for (int depth = 1; (size_t{1} << (depth - 1)) < blocks.size(); ++depth) {
    BlockSchedule schedule(chain);
    cut(blocks, 0, blocks.size(), 0, depth, schedule);
    schedule.offer(simulator, "nested", archive);
  }
}

}  // namespace lowtide::planner
