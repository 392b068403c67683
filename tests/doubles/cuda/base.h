// What every part of the CUDA double shares: settings, one lock, errors, misuse.
//
// All state of the double is guarded by one lock, which each entry point takes once: `Lock lock;`.
// Functions that need it say so with their first word, "Locked". State is never destroyed, since
// programs call CUDA until their very end.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "calls.h"

namespace cuda_double {

struct Settings {
  int devices;
  uint64_t memory_bytes;  // of each device
  uint64_t delay_ticks;
  int major, minor;  // compute capability
  bool strict;
  bool report;
};
// The first call reads the environment and prints the banner.
const Settings& settings();
[[nodiscard]] inline bool device_exists(int device) {
  return device >= 0 && device < settings().devices;
}

std::mutex& state_mutex();
class Lock {
 public:
  Lock() : guard_(state_mutex()) {}

 private:
  std::lock_guard<std::mutex> guard_;
};

// Sets the thread's last error, as each runtime call that fails does; returns it.
cudaError_t fail(cudaError_t error);

// What is not modelled says so, once for each name, and fails. Take no lock.
cudaError_t missing_runtime(const char* what);
CUresult missing_driver(const char* what);

enum class Misuse { kDoubleFree, kForeignFree, kUnmapped, kUseAfterFree, kFreedInUse };
inline constexpr int kMisuses = 5;
// Locked. Counts it and keeps the first text of each kind.
void report_misuse(Misuse kind, const std::string& text);
// Locked. All kinds with a count, one per line with its first text; empty where there are none.
std::string misuse_table();

std::string hex(uintptr_t address);

}  // namespace cuda_double
