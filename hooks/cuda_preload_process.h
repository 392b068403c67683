// Door C in its process: whether it counts, the one account, and when the report is written.
// - Nothing here waits for the constructor: a call that comes before it is counted as any other.
// - A call that the runtime, or a library below this one, makes while it serves another goes
//   straight on: each request is counted once, as the program made it.
// - A forked child is not watched, nor is what the program starts; only a program that takes its
//   place (env, nice) is. LOWTIDE_CUDA_FOLLOW=1 watches all, each with a report of its own.
// - The report is written when the process exits. One that goes to a file is also written whenever
//   a peak has grown by a sixteenth, so that a process that is killed leaves one, too.
//
// Environment, read before main: LOWTIDE_CUDA_REPORT (file of the report, as JSON; "%p" in it
// becomes the process number; without it the report is text on stderr), LOWTIDE_CUDA_FOLLOW,
// LOWTIDE_CUDA_FIRST_PROCESS (number of the process that is watched without being followed; set by
// the first one that finds it unset), LOWTIDE_DISABLE (nothing is counted or said).
//
// Thread safety: all calls, at any time of the process, also after its exit handlers. Nothing is
// thrown; errno and the program's last CUDA error stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/cuda_preload_account.h"

namespace lowtide::hooks {

inline constexpr int kCurrentDevice = -1;  // a place

[[nodiscard]] inline uint64_t key_of(const void* address) noexcept {
  return reinterpret_cast<uint64_t>(address);
}
[[nodiscard]] inline uint64_t key_of(unsigned long long address) noexcept { return address; }

// One call that the program makes of the runtime or the driver, from its first instruction to its
// last. Results are cudaError_t or CUresult, 0 is success; functions return the one they are given.
class Interception {
 public:
  Interception() noexcept;
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  // Null where this call is not to be counted.
  [[nodiscard]] PreloadAccount* account() const noexcept;

  // `address` is read on success only.
  template <typename Result, typename Address>
  Result allocated(int place, Result result, const Address* address, size_t bytes) const noexcept {
    const uint64_t key = result == Result{} ? key_of(*address) : 0;
    if (counts_) note_allocation(place, static_cast<int>(result), key, bytes);
    return result;
  }
  // Before the free is made. False: memory that the account does not know.
  [[nodiscard]] bool freeing(uint64_t address) const noexcept;
  // After it.
  template <typename Result>
  Result freed(bool known, Result result) const noexcept {
    if (known && result != Result{}) note_failed_free();
    return result;
  }
  // Physical memory of the driver, by its handle.
  template <typename Result>
  Result created(int place, Result result, const unsigned long long* handle,
                 size_t bytes) const noexcept {
    const uint64_t key = result == Result{} ? *handle : 0;
    if (counts_) note_creation(place, static_cast<int>(result), key, bytes);
    return result;
  }

  // Of the calling thread; after a call of the runtime that needed a device.
  static int current_device() noexcept;

 private:
  static void note_allocation(int place, int error, uint64_t address, size_t bytes) noexcept;
  static void note_creation(int place, int error, uint64_t handle, size_t bytes) noexcept;
  static void note_failed_free() noexcept;

  bool outermost_, counts_;
};

}  // namespace lowtide::hooks
