// The driver API's front: entry points by name, devices and their primary contexts.
#include <dlfcn.h>

#include <algorithm>

#include "ranges.h"
#include "timeline.h"
#include "work.h"

using namespace cuda_double;

namespace {

// The context of a device is the device's number, so that it can be told without a table.
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
}

// Preloaded or linked, the double comes first in the search. Newest version first: names without
// one may be stubs.
void* entry_point(const char* symbol) {
  for (const char* version : {"_v3", "_v2", ""}) {
    if (void* found = dlsym(RTLD_DEFAULT, (std::string(symbol) + version).c_str())) return found;
  }
  return nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  CUDA_DOUBLE_CALL();
  *function = entry_point(symbol);
  if (!*function) missing(symbol);
  if (status) {
    *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

// As runtimes before 13 have it.
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  CUDA_DOUBLE_CALL();
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* status) {
  CUDA_DOUBLE_CALL();
  *function = entry_point(symbol);
  if (status) {
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuInit(unsigned) {
  CUDA_DOUBLE_CALL();
  return settings().devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) {
  CUDA_DOUBLE_CALL();
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  CUDA_DOUBLE_CALL();
  *count = settings().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CUDA_DOUBLE_CALL();
  if (!device_exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CUDA_DOUBLE_CALL();
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  CUDA_DOUBLE_CALL();
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  CUDA_DOUBLE_CALL();
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  CUDA_DOUBLE_CALL();
  if (!context) return CUDA_SUCCESS;
  return cudaSetDevice(device_of(context)) == cudaSuccess ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  CUDA_DOUBLE_CALL();
  *device = current_device();
  return CUDA_SUCCESS;
}

// Of all that the program asks of a pointer, whether it is the device's and which address it has.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr pointer) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const Range* range = Ranges::instance().containing(pointer);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(value) =
          range->on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = context_of(range->device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = range->device;
      return CUDA_SUCCESS;
    default:
      return missing_driver(("cuPointerGetAttribute of " + std::to_string(which)).c_str());
  }
}

CUresult cuMemsetD32Async(CUdeviceptr begin, unsigned value, size_t count, CUstream stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaError_t error =
      put(stream, {.kind = kLowtideDoubleMemset,
                   .name = "memset 32",
                   .bytes = count * sizeof value,
                   .spans = {{begin, count * sizeof value}},
                   .run = [=] { std::fill_n(reinterpret_cast<unsigned*>(begin), count, value); }});
  return static_cast<CUresult>(error);  // the two have the same numbers
}

// Programs that ask for the driver's log get none.
CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* handle) {
  CUDA_DOUBLE_CALL();
  static char handles;
  *handle = reinterpret_cast<CUlogsCallbackHandle>(&handles);
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) {
  CUDA_DOUBLE_CALL();
  return CUDA_SUCCESS;
}

}  // extern "C"
