// Uniform recomputation (Megatron-LM, --recompute-method uniform): the blocks in groups of N, each
// group run again from its input. What lies outside of the blocks is kept. Without an argument
// every N is tried, large ones in steps of an eighth.
#include <algorithm>
#include <charconv>
#include <string>

#include "core/error.h"
#include "planner/block_chain.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

size_t group_size(std::string_view argument, size_t blocks) {
  size_t size = 0;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), size);
  if (error != std::errc() || end != argument.data() + argument.size() || size < 1 ||
      size > blocks) {
    throw InvalidInput("strategy \"uniform:" + std::string(argument) +
                       "\": blocks in a group are a number from 1 to " + std::to_string(blocks) +
                       ", the blocks of this trace");
  }
  return size;
}

}  // namespace

void explore_uniform(const Simulator& simulator, std::string_view argument, Archive& archive) {
  const BlockChain chain(simulator, "uniform");
  const std::vector<size_t>& blocks = chain.marked();
  const size_t least = argument.empty() ? 1 : group_size(argument, blocks.size());
  const size_t most = argument.empty() ? blocks.size() : least;
  for (size_t size = least; size <= most; size = std::max(size + 1, size * 9 / 8)) {
    BlockSchedule schedule(chain);
    for (const size_t block : blocks) schedule.set_interior(block, 1);
    for (size_t first = 0; first < blocks.size(); first += size) {
      const size_t last = std::min(first + size, blocks.size()) - 1;
      schedule.checkpoint(blocks[first], blocks[last] + 1, 0);
    }
    schedule.offer(simulator, "uniform:" + std::to_string(size), archive);
  }
}

}  // namespace lowtide::planner
