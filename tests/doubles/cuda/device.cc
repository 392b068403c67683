// Devices: which there are, what they say of themselves, and the thread's current one. Figures are
// an H200's where programs choose kernels by them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ranges.h"
#include "timeline.h"

using namespace cuda_double;

namespace {

thread_local int device_of_thread = 0;

constexpr int kProcessors = 132;
constexpr int kThreadsPerProcessor = 2048;
constexpr int kThreadsPerBlock = 1024;
constexpr int kWarp = 32;
constexpr int kSharedPerBlock = 48 << 10;
constexpr int kSharedOptIn = 227 << 10;
constexpr int kSharedPerProcessor = 228 << 10;
constexpr int kRegisters = 64 << 10;
constexpr int kL2Bytes = 50 << 20;

int blocks_that_fit(int threads) {
  return std::max(1, kThreadsPerProcessor / std::max(1, threads));
}

// False: not in the table.
bool attribute(int which, int* value) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return *value = kThreadsPerBlock, true;
    case cudaDevAttrMaxBlockDimZ:
      return *value = 64, true;
    case cudaDevAttrMaxGridDimX:
      return *value = 0x7fffffff, true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return *value = 65535, true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return *value = kSharedPerBlock, true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = kSharedOptIn, true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return *value = kSharedPerProcessor, true;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return *value = 1 << 10, true;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return *value = kRegisters, true;
    case cudaDevAttrWarpSize:
      return *value = kWarp, true;
    case cudaDevAttrMultiProcessorCount:
      return *value = kProcessors, true;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return *value = kThreadsPerProcessor, true;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return *value = 32, true;
    case cudaDevAttrL2CacheSize:
      return *value = kL2Bytes, true;
    case cudaDevAttrClockRate:
      return *value = 1'980'000, true;  // kHz
    case cudaDevAttrMemoryClockRate:
      return *value = 3'201'000, true;  // kHz
    case cudaDevAttrGlobalMemoryBusWidth:
      return *value = 6144, true;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = settings().major, true;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = settings().minor, true;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return *value = 1, true;
    case cudaDevAttrIntegrated:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrComputeMode:
    case cudaDevAttrHostNativeAtomicSupported:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      return *value = 0, true;
    default:
      return false;
  }
}

cudaDeviceProp properties(int device) {
  cudaDeviceProp result{};
  std::snprintf(result.name, sizeof result.name, "CUDA double %d", device);
  result.uuid.bytes[0] = static_cast<char>(device + 1);
  result.totalGlobalMem = DeviceBytes::of(device).limit();
  result.sharedMemPerBlock = kSharedPerBlock;
  result.sharedMemPerBlockOptin = kSharedOptIn;
  result.sharedMemPerMultiprocessor = kSharedPerProcessor;
  result.reservedSharedMemPerBlock = 1 << 10;
  result.regsPerBlock = result.regsPerMultiprocessor = kRegisters;
  result.warpSize = kWarp;
  result.maxThreadsPerBlock = kThreadsPerBlock;
  result.maxThreadsPerMultiProcessor = kThreadsPerProcessor;
  result.maxBlocksPerMultiProcessor = 32;
  result.maxThreadsDim[0] = result.maxThreadsDim[1] = kThreadsPerBlock;
  result.maxThreadsDim[2] = 64;
  result.maxGridSize[0] = 0x7fffffff;
  result.maxGridSize[1] = result.maxGridSize[2] = 65535;
  result.totalConstMem = 64 << 10;
  result.memPitch = 0x7fffffff;
  result.textureAlignment = 512;
  result.multiProcessorCount = kProcessors;
  result.major = settings().major;
  result.minor = settings().minor;
  result.pciBusID = device + 1;
  result.l2CacheSize = kL2Bytes;
  result.memoryBusWidth = 6144;
  result.asyncEngineCount = 3;
  result.concurrentKernels = result.unifiedAddressing = result.canMapHostMemory = 1;
  result.streamPrioritiesSupported = result.cooperativeLaunch = result.hostRegisterSupported = 1;
  return result;
}

}  // namespace

int cuda_double::current_device() { return device_of_thread; }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  CUDA_DOUBLE_CALL();
  *count = settings().devices;
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  CUDA_DOUBLE_CALL();
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device)) return fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* result, int device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device)) return fail(cudaErrorInvalidDevice);
  Lock lock;
  *result = properties(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device)) return fail(cudaErrorInvalidDevice);
  if (attribute(which, value)) return cudaSuccess;
  return missing_runtime(("cudaDeviceGetAttribute of " + std::to_string(which)).c_str());
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute(which, value)) return CUDA_SUCCESS;
  return missing_driver(("cuDeviceGetAttribute of " + std::to_string(which)).c_str());
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device)) return fail(cudaErrorInvalidDevice);
  std::snprintf(text, length, "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(device) || !device_exists(peer)) return fail(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  CUDA_DOUBLE_CALL();
  return device_exists(peer) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  CUDA_DOUBLE_CALL();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  CUDA_DOUBLE_CALL();
  *version = CUDA_VERSION;
  return cudaSuccess;
}

// Nothing profiles the double.
cudaError_t cudaProfilerStart() {
  CUDA_DOUBLE_CALL();
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  CUDA_DOUBLE_CALL();
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int block_threads, size_t,
                                                                   unsigned) {
  CUDA_DOUBLE_CALL();
  *blocks = blocks_that_fit(block_threads);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*,
                                                          int block_threads, size_t) {
  CUDA_DOUBLE_CALL();
  *blocks = blocks_that_fit(block_threads);
  return cudaSuccess;
}

}  // extern "C"
