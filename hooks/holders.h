// Who holds a device's memory: blocks of one op and one size together, those with most bytes first.
// For errors and reports. No thread safety; what allocates may throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::hooks {

struct Holder {
  int32_t op = -1;  // current_op() at the allocation; -1 = none was known
  int64_t block_bytes = 0;
  int64_t blocks = 0;
  [[nodiscard]] int64_t bytes() const noexcept { return block_bytes * blocks; }
};

class HolderCount {
 public:
  void add(int32_t op, int64_t block_bytes) { ++blocks_[{op, block_bytes}]; }
  // At most `most`.
  [[nodiscard]] std::vector<Holder> largest(size_t most) const;

 private:
  std::map<std::pair<int32_t, int64_t>, int64_t> blocks_;  // by op and bytes of each
};

// "2 x 40.0 MiB (op 17), 1 x 12.0 MiB"; empty without holders.
[[nodiscard]] std::string to_text(const std::vector<Holder>& holders);

}  // namespace lowtide::hooks
