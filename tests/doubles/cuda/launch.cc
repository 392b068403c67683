// Launches of kernels: logged by name and ordered; nothing is computed.
#include "kernels.h"

using namespace cuda_double;

cudaError_t cuda_double::launch(const void* function, cudaStream_t stream) {
  const CUkern_st* kernel = find_kernel(function);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  return put(stream, {.kind = kLowtideDoubleKernel, .name = kernel->name});
}

extern "C" {

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t,
                               cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(launch(kernel, stream));
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t,
                             cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(launch(function, stream));
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**, size_t,
                                        cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(launch(function, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(launch(function, config->stream));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (!find_kernel(function)) return fail(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  attributes->binaryVersion = attributes->ptxVersion = settings().major * 10 + settings().minor;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return find_kernel(function) ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute, int, int) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return find_kernel(kernel) ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}

}  // extern "C"
