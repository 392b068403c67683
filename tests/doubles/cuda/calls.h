// How often each function of the CUDA API was called, and which are not modelled. Lock-free but for
// the first call of a function that is missing. No CUDA header: the generated stubs include this
// and could not include declarations that have parameters.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace cuda_double {

// Counts the calls of one function; lives in that function.
class CallCount {
 public:
  explicit CallCount(const char* function);
  void add() { calls_.fetch_add(1, std::memory_order_relaxed); }
  static uint64_t of(const std::string& function);
  // The functions that were called, one per line with their count.
  static std::string table();

 private:
  const char* function_;
  std::atomic<uint64_t> calls_{0};
  CallCount* next_ = nullptr;
};
#define CUDA_DOUBLE_CALL()                               \
  static ::cuda_double::CallCount calls_here_{__func__}; \
  calls_here_.add()

// Says, once for each name, that this is not modelled.
void missing(const char* what);
uint64_t missing_calls();

// For generated stubs: the error of each library for what it does not support.
int missing_runtime_stub(const char* function);
int missing_driver_stub(const char* function);
int missing_blas_stub(const char* function);
// A launch on the stream of a cuBLAS handle.
int blas_launch(void* handle, const char* function);

}  // namespace cuda_double
