#include "hooks/light_lock.h"

#include <chrono>
#include <thread>

namespace lowtide::hooks {

void LightLock::wait_and_lock() noexcept {
  constexpr int kSpins = 500;
  constexpr int kYieldRounds = 20;
  constexpr auto kNap = std::chrono::microseconds(50);
  for (int round = 0;; ++round) {
    // Read until it looks free: exchanging all the time would slow the holder down. Every round
    // spins, so that a thread that comes back from a nap has more than one chance.
    for (int spin = 0; spin < kSpins; ++spin) {
      if (!taken_.load(std::memory_order_relaxed) && try_lock()) return;
    }
    if (round < kYieldRounds) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace lowtide::hooks
