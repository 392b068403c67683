#include "runtime/runtime_state.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace lowtide::runtime {

std::atomic<Runtime*> Runtime::active_{nullptr};

void Runtime::begin_step() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> released;
  {
    const std::lock_guard lock(mutex);
    if (tape == nullptr) {
      tape = std::make_shared<Tape>();
    } else if (tape->live_holders > 0) {
      older.emplace_back(tape);
      tape->forget_log();
      tape = std::make_shared<Tape>();
    } else {
      tape->clear(released);
    }
    std::erase_if(older, [](const std::weak_ptr<Tape>& t) { return t.expired(); });
    in_step = true;
    had_backward = false;
    backward_depth = 0;
    forward_ops = 0;
    step_keys.clear();
    counters = {};
    watched.clear();
    foreign.clear();
    tape->opaque_reads = never_drop.empty() ? 0 : 1;
  }
}

void Runtime::end_step() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> released;
  {
    const std::lock_guard lock(mutex);
    if (log != nullptr) {
      poll_releases();
    }
    in_step = false;
    watched.clear();
    foreign.clear();
    if (tape->live_holders == 0) {
      tape->clear(released);
    }
  }
}

void Runtime::enter_backward() {
  const std::lock_guard lock(mutex);
  ++backward_depth;
  had_backward = true;
  if (log != nullptr) {
    poll_releases();
  }
}

void Runtime::leave_backward() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> released;
  {
    const std::lock_guard lock(mutex);
    if (log != nullptr) {
      poll_releases();
    }
    if (--backward_depth == 0 && tape != nullptr && tape->idle()) {
      tape->clear(released);
    }
  }
}

void Runtime::poll_releases() {
  std::erase_if(watched, [this](const auto& entry) {
    Slot& slot = entry.first->slot(entry.second);
    if (slot.sid == kNone || slot.holders == 0) {
      return true;
    }
    if (!slot.sole_owner()) {
      return false;
    }
    log->release(slot.sid);
    return true;
  });
  std::erase_if(foreign, [this](const auto& entry) {
    Slot& slot = entry.first->slot(entry.second);
    if (slot.sid == kNone || slot.alive()) {
      return slot.sid == kNone;
    }
    log->free_absent(slot.sid);
    return true;
  });
}

void Runtime::watch_foreign(const std::shared_ptr<Tape>& owner, int32_t slot) {
  const Slot& made = owner->slot(slot);
  if (made.bytes > 0 && budgeted(*made.identity._unsafe_get_target()) &&
      !log->knows(made.identity._unsafe_get_target()->data())) {
    foreign.emplace_back(owner, slot);
  }
}

int64_t Runtime::price_of(int32_t ordinal, int64_t measured_ns) {
  const auto i = static_cast<size_t>(ordinal);
  if (i >= op_ns.size()) {
    op_ns.resize(i + 1, 0);
    op_ns[i] = measured_ns;
  }
  return op_ns[i];
}

Phase Runtime::phase() const {
  if (backward_depth > 0) {
    return Phase::backward;
  }
  if (c10::GradMode::is_enabled()) {
    return Phase::forward;
  }
  return had_backward ? Phase::optimizer : Phase::other;
}

bool Runtime::has_holders() {
  const std::lock_guard lock(mutex);
  for (const std::shared_ptr<Tape>& alive : tapes()) {
    if (alive->live_holders > 0) {
      return true;
    }
  }
  return false;
}

std::vector<std::shared_ptr<Tape>> Runtime::tapes() {
  std::vector<std::shared_ptr<Tape>> alive;
  for (const std::weak_ptr<Tape>& weak : older) {
    if (auto strong = weak.lock()) {
      alive.push_back(std::move(strong));
    }
  }
  if (tape != nullptr) {
    alive.push_back(tape);
  }
  return alive;
}

}  // namespace lowtide::runtime
