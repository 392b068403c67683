#include "hooks/pending_frees.h"

#include <utility>

namespace lowtide::hooks {

PendingFrees::~PendingFrees() {
  wait([](DeviceBlock*) {});
}

bool PendingFrees::add(DeviceBlock* block) noexcept {
  const std::vector<DeviceStream> users = std::exchange(block->users, {});
  if (std::exchange(block->used_on_unknown, false)) backend_.wait_for_device();
  block->events = 0;
  for (DeviceStream stream : users) {
    if (wait_behind(stream, block)) ++block->events;
  }
  return block->events > 0;
}

bool PendingFrees::wait_behind(DeviceStream stream, DeviceBlock* block) noexcept {
  DeviceEvent event = nullptr;
  const DeviceBackend::Recorded recorded = backend_.record(stream, event);
  try {
    if (recorded == DeviceBackend::Recorded::yes) {
      events_[stream].push_back({event, block});
      return true;
    }
    if (recorded == DeviceBackend::Recorded::capturing) {
      captured_.push_back({stream, block, false});
      return true;
    }
  } catch (...) {
    // No memory to remember the event.
    if (event != nullptr) {
      backend_.wait(event);
      backend_.recycle(event);
      return false;
    }
  }
  backend_.wait_for_stream(stream);
  return false;
}

// Each entry becomes an event once its stream takes one.
void PendingFrees::retry_captured() noexcept {
  for (Captured& entry : captured_) {
    if (entry.done || backend_.capturing(entry.stream)) continue;
    DeviceEvent event = nullptr;
    if (backend_.record(entry.stream, event) == DeviceBackend::Recorded::yes) {
      try {
        events_[entry.stream].push_back({event, entry.block});
        ++entry.block->events;
      } catch (...) {
        backend_.wait(event);
        backend_.recycle(event);
      }
    } else {
      backend_.wait_for_stream(entry.stream);
    }
    entry.done = true;
  }
}

DeviceBlock* PendingFrees::end_first(std::deque<Waiting>& queue) noexcept {
  const Waiting first = queue.front();
  queue.pop_front();
  backend_.recycle(first.event);
  return --first.block->events == 0 ? first.block : nullptr;
}

void PendingFrees::abandon() noexcept {
  events_.clear();
  captured_.clear();
}

}  // namespace lowtide::hooks
