#include "hooks/light_lock.h"

#include <chrono>
#include <thread>

namespace lowtide::hooks {

void LightLock::wait_and_lock() noexcept {
  constexpr int kSpins = 200;
  constexpr int kYields = 50;
  constexpr auto kNap = std::chrono::microseconds(50);
  for (int round = 0;; ++round) {
    // Read until it looks free: exchanging all the time would slow the holder down.
    if (!taken_.load(std::memory_order_relaxed) && try_lock()) return;
    if (round < kSpins) continue;
    if (round < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace lowtide::hooks
