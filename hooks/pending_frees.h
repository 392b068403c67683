// Freed blocks that work of other streams may still use: each waits for an event on each of these
// streams before it is anybody's again.
//
// Owns the events, not the blocks. No thread safety: the core calls it under its lock. Nothing is
// thrown: where there is no memory for the books, the work is waited for at once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "hooks/device_backend.h"
#include "hooks/device_block.h"

namespace lowtide::hooks {

class PendingFrees {
 public:
  explicit PendingFrees(DeviceBackend& backend) : backend_(backend) {}
  ~PendingFrees();  // waits for all events; after abandon() there are none

  // The block's users are forgotten. True: the block waits, and one of the calls below will say
  // when it no longer does. False: there is nothing to wait for.
  [[nodiscard]] bool add(DeviceBlock* block) noexcept;
  [[nodiscard]] bool empty() const noexcept { return events_.empty() && captured_.empty(); }

  // Calls `ready` with each block that has nothing left to wait for.
  template <typename Ready>
  void collect(Ready ready) noexcept {
    retry_captured();
    for (auto queue = events_.begin(); queue != events_.end();) {
      while (!queue->second.empty() && backend_.complete(queue->second.front().event)) {
        if (DeviceBlock* const block = end_first(queue->second)) ready(block);
      }
      queue = queue->second.empty() ? events_.erase(queue) : std::next(queue);
    }
    ready_without_event(ready);
  }
  // The same after waiting. Blocks behind a stream that is being captured go on waiting.
  template <typename Ready>
  void wait(Ready ready) noexcept {
    retry_captured();
    for (auto& [stream, queue] : events_) {
      while (!queue.empty()) {
        backend_.wait(queue.front().event);
        if (DeviceBlock* const block = end_first(queue)) ready(block);
      }
    }
    events_.clear();
    ready_without_event(ready);
  }

  // The device is gone (a forked child).
  void abandon() noexcept;

 private:
  struct Waiting {
    DeviceEvent event;
    DeviceBlock* block;
  };
  struct Captured {
    DeviceStream stream;
    DeviceBlock* block;
    bool done;
  };

  // True: the block now waits for the stream.
  bool wait_behind(DeviceStream stream, DeviceBlock* block) noexcept;
  void retry_captured() noexcept;
  // Null while the block waits for more.
  [[nodiscard]] DeviceBlock* end_first(std::deque<Waiting>& queue) noexcept;
  template <typename Ready>
  void ready_without_event(Ready ready) noexcept {
    for (Captured& entry : captured_) {
      if (entry.done && --entry.block->events == 0) ready(entry.block);
    }
    std::erase_if(captured_, [](const Captured& entry) { return entry.done; });
  }

  DeviceBackend& backend_;
  std::map<DeviceStream, std::deque<Waiting>> events_;  // in the order of each stream
  std::vector<Captured> captured_;  // behind streams that took no event when the block was freed
};

}  // namespace lowtide::hooks
