// A tool between a program and the CUDA runtime, as a profiler or an older shim is: answers one
// request by another, through the symbol that everybody uses. To be preloaded behind Lowtide's.
#include <cuda_runtime_api.h>

extern "C" cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return cudaMalloc(address, bytes);
}
