// Random lives on an allocator of device memory, whichever door it is: blocks of all sizes on a few
// streams, used by others, freed by many threads. The CUDA double is told of each block and judges:
// it speaks up where one is handed out too early.
//
// LOWTIDE_STRESS_OPERATIONS sets how many operations a stress test makes (default 100,000 over all
// threads).
#pragma once

#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "doubles/cuda/cuda_double.h"

namespace lowtide::testing {

class LifeAllocator {
 public:
  virtual void* allocate(size_t bytes, cudaStream_t stream) = 0;  // null: there is no memory
  virtual bool free(void* block) = 0;
  virtual void use_on(void* block, cudaStream_t stream) = 0;
  virtual void trim() = 0;

 protected:
  ~LifeAllocator() = default;
};

inline int stress_operations() {
  const char* const text = std::getenv("LOWTIDE_STRESS_OPERATIONS");
  return text != nullptr ? std::atoi(text) : 100'000;
}

class DeviceLives {
 public:
  static constexpr int kThreads = 8;
  static constexpr int kStreams = 4;

  explicit DeviceLives(LifeAllocator& allocator) : allocator_(allocator) {
    for (cudaStream_t& stream : streams_) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  ~DeviceLives() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  DeviceLives(const DeviceLives&) = delete;
  DeviceLives& operator=(const DeviceLives&) = delete;

  // One life. What is live at the end is freed. `before`: called with each operation's number.
  void live(uint32_t seed, int operations, const std::function<void(int)>& before = {}) {
    std::mt19937 random(seed);
    std::vector<Held> blocks;
    for (int i = 0; i < operations; ++i) {
      if (before) before(i);
      const cudaStream_t stream = streams_[random() % kStreams];
      const uint32_t dice = random() % 16;
      if (blocks.size() < 24 && (blocks.empty() || dice < 7)) {
        const size_t bytes = size(random);
        void* const address = allocator_.allocate(bytes, stream);
        if (address == nullptr) {
          ++failed;
          continue;
        }
        lowtide_double_given(address, bytes, stream);
        lowtide_double_touch(address, bytes, stream);
        blocks.push_back({address, bytes});
      } else if (blocks.empty()) {
        continue;
      } else if (dice < 10) {
        const Held& block = blocks[random() % blocks.size()];
        lowtide_double_touch(block.address, block.bytes, stream);
        allocator_.use_on(block.address, stream);
      } else if (dice == 15 && random() % 64 == 0) {
        allocator_.trim();
      } else {
        give_up(blocks, random() % blocks.size());
      }
    }
    while (!blocks.empty()) give_up(blocks, blocks.size() - 1);
  }

  void live_in_threads(int operations) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(
          [this, t, operations] { live(static_cast<uint32_t>(t + 1), operations / kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // What a training program's data loaders do: 100 forks while two threads allocate. `in_child`
  // says whether the child finds everything as it should; they end by _exit(),
  // quick_exit() and SIGKILL, as data loaders' workers do. (Destructors would run into what other
  // threads left half done in torch's allocator.) How many ended otherwise, or not within 20 s.
  int fork_rounds(const std::function<bool()>& in_child) {
    constexpr int kRounds = 100;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 2; ++t) {
      threads.emplace_back([this, t, &stop] {
        for (uint32_t round = 0; !stop; ++round) {
          live(1000 * t + round, 50);
          usleep(200);  // else the forks wait for a processor
        }
      });
    }
    int wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);  // a hang becomes a failure
        const int code = in_child() ? 0 : 1;
        if (round % 4 == 0) std::quick_exit(code);
        if (round % 2 == 0) _exit(code);
        kill(getpid(), SIGKILL);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child) ++wrong;
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (round % 2 == 1 ? !killed : !ended) ++wrong;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    return wrong;
  }

  std::atomic<int> refused{0};  // frees
  std::atomic<int> failed{0};   // requests

 private:
  struct Held {
    void* address;
    size_t bytes;
  };

  static size_t size(std::mt19937& random) {
    switch (random() % 4) {
      case 0:
        return 1 + random() % 4096;
      case 1:
        return 1 + random() % (size_t{1} << 20);
      case 2:
        return 1 + random() % (size_t{8} << 20);
      default:
        return 512 * (1 + random() % 64);
    }
  }

  void give_up(std::vector<Held>& blocks, size_t index) {
    const Held block = blocks[index];
    std::swap(blocks[index], blocks.back());
    blocks.pop_back();
    lowtide_double_returned(block.address, block.bytes);
    if (!allocator_.free(block.address)) ++refused;
  }

  LifeAllocator& allocator_;
  cudaStream_t streams_[kStreams] = {};
};

}  // namespace lowtide::testing
