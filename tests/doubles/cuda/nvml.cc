// NVML as torch asks it: how many devices there are, what runs on them, which fabric joins them.
// No header of NVML is at hand: its functions are declared here as its documentation has them.
#include <cstdio>
#include <cstring>

#include "ranges.h"

using namespace cuda_double;

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;

struct Memory {
  unsigned long long total, free, used;
};

// A device's handle is its number plus one.
void* handle_of(int device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1); }
int number_of(void* handle) { return static_cast<int>(reinterpret_cast<uintptr_t>(handle)) - 1; }

}  // namespace

extern "C" {

int nvmlInit() {
  CUDA_DOUBLE_CALL();
  return kSuccess;
}
int nvmlInit_v2() {
  CUDA_DOUBLE_CALL();
  return kSuccess;
}
int nvmlShutdown() {
  CUDA_DOUBLE_CALL();
  return kSuccess;
}

const char* nvmlErrorString(int code) { return code == kSuccess ? "Success" : "CUDA double"; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  CUDA_DOUBLE_CALL();
  *count = static_cast<unsigned>(settings().devices);
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(static_cast<int>(index))) return kInvalidArgument;
  *device = handle_of(static_cast<int>(index));
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  CUDA_DOUBLE_CALL();
  unsigned domain = 0, number = 0;
  if (std::sscanf(bus, "%x:%x:", &domain, &number) != 2) return kInvalidArgument;
  if (!device_exists(static_cast<int>(number) - 1)) return kInvalidArgument;
  *device = handle_of(static_cast<int>(number) - 1);
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(number_of(handle))) return kInvalidArgument;
  Lock lock;
  const DeviceBytes& device = DeviceBytes::of(number_of(handle));
  *memory = {device.limit(), device.left(), device.bytes()};
  return kSuccess;
}

// No process is listed: programs then leave their own bytes out of messages.
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  CUDA_DOUBLE_CALL();
  *count = 0;
  return kSuccess;
}

int nvmlDeviceGetGpuFabricInfoV(void*, void*) {
  CUDA_DOUBLE_CALL();
  return kNotSupported;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) {
  CUDA_DOUBLE_CALL();
  return kNotSupported;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) {
  CUDA_DOUBLE_CALL();
  return kNotSupported;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  CUDA_DOUBLE_CALL();
  *version = CUDA_VERSION;
  return kSuccess;
}

}  // extern "C"
