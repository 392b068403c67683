#include "hooks/cuda_runtime.h"

#include <dlfcn.h>

#include <mutex>

namespace lowtide::hooks {
namespace {

template <typename Function>
bool look_up(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool fill(void* library, CudaRuntime& table) noexcept {
  return look_up(library, "cudaGetDeviceCount", table.get_device_count) &&
         look_up(library, "cudaGetDevice", table.get_device) &&
         look_up(library, "cudaSetDevice", table.set_device) &&
         look_up(library, "cudaMalloc", table.malloc) && look_up(library, "cudaFree", table.free) &&
         look_up(library, "cudaMemcpy", table.memcpy) &&
         look_up(library, "cudaMemGetInfo", table.mem_get_info) &&
         look_up(library, "cudaEventCreateWithFlags", table.event_create_with_flags) &&
         look_up(library, "cudaEventDestroy", table.event_destroy) &&
         look_up(library, "cudaEventRecord", table.event_record) &&
         look_up(library, "cudaEventQuery", table.event_query) &&
         look_up(library, "cudaEventSynchronize", table.event_synchronize) &&
         look_up(library, "cudaStreamSynchronize", table.stream_synchronize) &&
         look_up(library, "cudaDeviceSynchronize", table.device_synchronize) &&
         look_up(library, "cudaStreamIsCapturing", table.stream_is_capturing) &&
         look_up(library, "cudaThreadExchangeStreamCaptureMode", table.exchange_capture_mode) &&
         look_up(library, "cudaGetDeviceProperties", table.get_device_properties) &&
         look_up(library, "cudaGetLastError", table.get_last_error) &&
         look_up(library, "cudaGetErrorString", table.get_error_string);
}

// A program's runtime may be loaded without its names being everybody's: it is then asked for by
// its own name, before a second one would be loaded.
bool find_anywhere(CudaRuntime& table) noexcept {
  if (fill(RTLD_DEFAULT, table)) return true;
  for (const int loaded_only : {RTLD_NOLOAD, 0}) {
    for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
      void* const library = dlopen(name, RTLD_LAZY | loaded_only);
      if (library != nullptr && fill(library, table)) return true;
    }
  }
  return false;
}

}  // namespace

const CudaRuntime* CudaRuntime::find(std::string* why_not) noexcept {
  static std::mutex mutex;
  static CudaRuntime table;
  static bool found = false;
  const std::lock_guard lock(mutex);
  if (!found) found = find_anywhere(table);
  if (found) return &table;
  if (why_not != nullptr) {
    *why_not =
        "no CUDA runtime in this process and neither libcudart.so.13 nor libcudart.so.12 can be "
        "loaded. Fix: load torch first, or put the runtime's folder into LD_LIBRARY_PATH";
  }
  return nullptr;
}

}  // namespace lowtide::hooks
