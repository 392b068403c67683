// A mutex for sections of a few dozen instructions: one atomic exchange to lock, one store to
// unlock, and as long as the process has a single thread two stores (the C library's malloc goes as
// far). A waiter spins, then yields, then sleeps in short naps, so a holder that lost the processor
// gets it back. Not fair, not recursive. Meets Lockable: std::lock_guard and std::unique_lock take
// it.
#pragma once

#include <sys/single_threaded.h>

#include <atomic>

namespace lowtide::hooks {

class LightLock {
 public:
  void lock() noexcept {
    // Whoever starts the second thread holds no lock, so it finds every lock as it is.
    if (__libc_single_threaded != 0) {
      taken_.store(true, std::memory_order_relaxed);
    } else if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      wait_and_lock();
    }
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !taken_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  void wait_and_lock() noexcept;

  std::atomic<bool> taken_{false};
};

}  // namespace lowtide::hooks
