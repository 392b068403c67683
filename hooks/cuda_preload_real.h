// The functions that the preloaded library puts itself in front of: found when first called, kept
// for good. A program that is linked with the runtime has them next in its search order; in Python
// the runtime is loaded later and for few eyes only, and is asked for by its name.
//
// One runtime per process: where several are loaded, the first one found gets all calls.
//
// Thread safety: all calls. Nothing is thrown, nothing is loaded.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace lowtide::hooks {

// Null: this process has no shared CUDA runtime, or one without the function.
[[nodiscard]] void* find_real(const char* name) noexcept;
// Whether CUDA's driver is in this process, whoever loaded it.
[[nodiscard]] bool has_cuda_driver() noexcept;

template <typename Function>
class RealFunction;

template <typename... Parameters>
class RealFunction<cudaError_t(Parameters...)> {
 public:
  constexpr explicit RealFunction(const char* name) : name_(name) {}

  cudaError_t operator()(Parameters... parameters) noexcept {
    auto* function = function_.load(std::memory_order_acquire);
    if (function == nullptr) {
      function = reinterpret_cast<Function*>(find_real(name_));
      if (function == nullptr) return cudaErrorSharedObjectSymbolNotFound;
      function_.store(function, std::memory_order_release);
    }
    return function(parameters...);
  }

 private:
  using Function = cudaError_t(Parameters...);
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace lowtide::hooks
