// A step's memory events, run again and again through a caching core over a counting backend, each
// step as the next one of a training run would find the core. For reserved_replay.h and
// device_replay.h; no thread safety.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "hooks/flat_table.h"
#include "hooks/reserved_replay.h"

namespace lowtide::hooks {

// `Core` allocates, frees, and tells sizes as CachingCore does. Blocks that a step leaves alive are
// the next one's.
template <typename Core>
class StepReplay {
 public:
  template <typename... Arguments>
  explicit StepReplay(std::span<const ReplayEvent> events, Arguments&&... core)
      : events_(events), core_(std::forward<Arguments>(core)...) {}

  [[nodiscard]] Core& core() { return core_; }

  // Throws InvalidInput as reserved_replay.h says.
  void step() {
    FlatTable<void> live;  // by block number + 1, as 0 is no key
    bool beginning = true;
    for (size_t i = 0; i < events_.size(); ++i) {
      const ReplayEvent& event = events_[i];
      const uint64_t key = uint64_t{static_cast<uint32_t>(event.block)} + 1;
      void* block = live.find(key);
      if (event.bytes == 0 || (block == nullptr) != (event.bytes > 0)) refuse(i, block);
      if (event.bytes < 0) {
        if (std::exchange(beginning, false)) forget_the_rest();
        live.erase(key);
        core_.free(block);
        continue;
      }
      if (beginning) block = inherit(event.bytes);
      if (block == nullptr) block = core_.allocate(static_cast<size_t>(event.bytes));
      if (block == nullptr || !live.insert(key, block)) {
        throw InvalidInput("memory event " + std::to_string(i) + " allocates " +
                           std::to_string(event.bytes) + " bytes, more than a machine can address");
      }
    }
    forget_the_rest();
    live.for_each([this](void* block) {
      inherited_[core_.rounded_size(core_.requested_size(block))].push_back(block);
    });
  }

 private:
  [[noreturn]] void refuse(size_t i, const void* block) const {
    const ReplayEvent& event = events_[i];
    const char* const wrong = event.bytes == 0   ? " has zero bytes"
                              : block != nullptr ? " allocates a live block"
                                                 : " frees a block that is not live";
    throw InvalidInput("memory event " + std::to_string(i) + " (block " +
                       std::to_string(event.block) + ")" + wrong +
                       "; pass the events of one step in order");
  }

  void* inherit(int64_t bytes) {
    const auto found = inherited_.find(core_.rounded_size(static_cast<size_t>(bytes)));
    if (found == inherited_.end() || found->second.empty()) return nullptr;
    void* const block = found->second.back();
    found->second.pop_back();
    return block;
  }

  void forget_the_rest() {
    for (auto& [rounded, blocks] : inherited_) {
      for (void* const block : blocks) core_.free(block);
    }
    inherited_.clear();
  }

  std::span<const ReplayEvent> events_;
  Core core_;
  std::unordered_map<size_t, std::vector<void*>> inherited_;  // by rounded size
};

}  // namespace lowtide::hooks
