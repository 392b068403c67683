#include "hooks/holders.h"

#include <algorithm>

#include "core/bytes.h"

namespace lowtide::hooks {

std::vector<Holder> HolderCount::largest(size_t most) const {
  std::vector<Holder> holders;
  for (const auto& [key, blocks] : blocks_) holders.push_back({key.first, key.second, blocks});
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes() > b.bytes(); });
  if (holders.size() > most) holders.resize(most);
  return holders;
}

std::string to_text(const std::vector<Holder>& holders) {
  std::string text;
  for (const Holder& holder : holders) {
    if (!text.empty()) text += ", ";
    text += std::to_string(holder.blocks) + " x " + format_bytes(holder.block_bytes);
    if (holder.op >= 0) text += " (op " + std::to_string(holder.op) + ")";
  }
  return text;
}

}  // namespace lowtide::hooks
