// A pointer to somebody else's callback, called without the lock it is read under. Whoever replaces
// it waits until no other thread is inside the old one, which may then be destroyed: callers are
// counted. `lock` is always the one lock that guards the slot.
#pragma once

#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace lowtide::hooks {

template <typename Callback>
class CallbackSlot {
 public:
  [[nodiscard]] Callback* get() const noexcept { return callback_; }

  // With the lock held, before it is released for the call.
  void enter() noexcept { ++callers_; }
  // After the call: with the lock held again, or without it.
  void leave() noexcept { --callers_; }
  void leave_unlocked() noexcept {
    if (__libc_single_threaded != 0) {
      left_unlocked_.store(left_unlocked_.load(std::memory_order_relaxed) + 1,
                           std::memory_order_relaxed);
    } else {
      left_unlocked_.fetch_add(1, std::memory_order_release);
    }
  }

  // `own_calls`: how many calls of this slot the calling thread is itself inside of.
  template <typename Lock>
  void replace(Lock& lock, Callback* callback, int64_t own_calls = 0) noexcept {
    std::unique_lock held(lock);
    callback_ = callback;
    while (callers_ - left_unlocked_.load(std::memory_order_acquire) > own_calls) {
      held.unlock();
      std::this_thread::yield();
      held.lock();
    }
  }

  // In a forked child, with the lock held: the other threads are gone and will never leave.
  void forget_other_threads(int64_t own_calls) noexcept {
    callers_ = own_calls;
    left_unlocked_.store(0, std::memory_order_relaxed);
  }

 private:
  Callback* callback_ = nullptr;
  int64_t callers_ = 0;
  std::atomic<int64_t> left_unlocked_{0};
};

}  // namespace lowtide::hooks
