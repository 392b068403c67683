// Further ways to ask for memory. Each is the plain one with another size, so that the double's
// count of calls has the plain one as well.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "calls.h"

namespace {

constexpr size_t kPitch = 512;

size_t pitch_of(size_t width) { return (width + kPitch - 1) / kPitch * kPitch; }

size_t texel_bytes(const cudaChannelFormatDesc& texel) {
  return static_cast<size_t>(texel.x + texel.y + texel.z + texel.w) / 8;
}

}  // namespace

extern "C" {

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  CUDA_DOUBLE_CALL();
  return cudaMalloc(pointer, bytes);
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  CUDA_DOUBLE_CALL();
  *pitch = pitch_of(width);
  return cudaMalloc(pointer, *pitch * height);
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  CUDA_DOUBLE_CALL();
  const size_t pitch = pitch_of(extent.width);
  *pitched = {nullptr, pitch, extent.width, extent.height};
  return cudaMalloc(&pitched->ptr, pitch * extent.height * extent.depth);
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* texel, size_t width,
                            size_t height, unsigned) {
  CUDA_DOUBLE_CALL();
  return cudaMalloc(reinterpret_cast<void**>(array),
                    texel_bytes(*texel) * width * std::max<size_t>(height, 1));
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  CUDA_DOUBLE_CALL();
  return cudaFree(array);
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t,
                                    cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  return cudaMallocAsync(pointer, bytes, stream);
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  CUDA_DOUBLE_CALL();
  return static_cast<CUresult>(cudaMalloc(reinterpret_cast<void**>(pointer), bytes));
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  CUDA_DOUBLE_CALL();
  return static_cast<CUresult>(cudaFree(reinterpret_cast<void*>(pointer)));
}

}  // extern "C"
