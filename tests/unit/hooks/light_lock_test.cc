#include "hooks/light_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace lowtide::hooks {
namespace {

TEST(LightLock, ExcludesOtherThreads) {
  LightLock lock;
  int64_t counter = 0;  // not atomic: only the lock protects it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::lock_guard held(lock);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 80'000);
}

TEST(LightLock, AWaiterGetsItAfterALongHold) {
  LightLock lock;
  bool done = false;
  std::unique_lock held(lock);
  std::thread waiter([&] {
    const std::lock_guard mine(lock);
    done = true;
  });
  EXPECT_FALSE(lock.try_lock());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than it spins and yields
  EXPECT_FALSE(done);
  held.unlock();
  waiter.join();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace lowtide::hooks
