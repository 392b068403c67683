// The CUDA runtime of this process, as a table of the few functions that Lowtide calls. It is
// looked up when first needed, so that nothing of Lowtide needs CUDA to load: first among what the
// process has loaded already (the program's own runtime, or a double), then as libcudart.so.13 and
// .12. The functions have the same signature in both.
//
// Thread safety: all calls. Nothing is thrown.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace lowtide::hooks {

struct CudaRuntime {
  decltype(&::cudaGetDeviceCount) get_device_count = nullptr;
  decltype(&::cudaGetDevice) get_device = nullptr;
  decltype(&::cudaSetDevice) set_device = nullptr;
  cudaError_t (*malloc)(void**, size_t) = nullptr;
  cudaError_t (*free)(void*) = nullptr;
  cudaError_t (*memcpy)(void*, const void*, size_t, cudaMemcpyKind) = nullptr;
  decltype(&::cudaMemGetInfo) mem_get_info = nullptr;
  cudaError_t (*event_create_with_flags)(cudaEvent_t*, unsigned int) = nullptr;
  decltype(&::cudaEventDestroy) event_destroy = nullptr;
  cudaError_t (*event_record)(cudaEvent_t, cudaStream_t) = nullptr;
  decltype(&::cudaEventQuery) event_query = nullptr;
  decltype(&::cudaEventSynchronize) event_synchronize = nullptr;
  decltype(&::cudaStreamSynchronize) stream_synchronize = nullptr;
  decltype(&::cudaDeviceSynchronize) device_synchronize = nullptr;
  decltype(&::cudaStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&::cudaThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&::cudaGetDeviceProperties) get_device_properties = nullptr;
  decltype(&::cudaGetLastError) get_last_error = nullptr;
  decltype(&::cudaGetErrorString) get_error_string = nullptr;

  // Null where this machine has no CUDA runtime; `why_not`, if given, then says so and what to do.
  // The answer "none" is not kept: the program may load one later.
  [[nodiscard]] static const CudaRuntime* find(std::string* why_not = nullptr) noexcept;
};

}  // namespace lowtide::hooks
