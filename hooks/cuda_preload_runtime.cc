// The functions of the CUDA runtime that door C stands in front of. Each calls the real one and
// changes nothing of what the program gets. Those that end in _ptsz are what programs call that
// were compiled for per-thread default streams.
//
// The device of a stream-ordered allocation is taken to be the calling thread's current one. What
// arrays take on the device is the driver's secret: their texels are counted.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "hooks/cuda_preload_driver.h"
#include "hooks/cuda_preload_process.h"
#include "hooks/cuda_preload_real.h"

#define LOWTIDE_IN_FRONT extern "C" [[gnu::visibility("default")]] cudaError_t

using namespace lowtide::hooks;

namespace {

#define LOWTIDE_REAL(name, ...) constinit RealFunction<cudaError_t(__VA_ARGS__)> real_##name(#name)

LOWTIDE_REAL(cudaMalloc, void**, size_t);
LOWTIDE_REAL(cudaMallocManaged, void**, size_t, unsigned);
LOWTIDE_REAL(cudaMallocPitch, void**, size_t*, size_t, size_t);
LOWTIDE_REAL(cudaMalloc3D, cudaPitchedPtr*, cudaExtent);
LOWTIDE_REAL(cudaMallocArray, cudaArray_t*, const cudaChannelFormatDesc*, size_t, size_t, unsigned);
LOWTIDE_REAL(cudaMalloc3DArray, cudaArray_t*, const cudaChannelFormatDesc*, cudaExtent, unsigned);
LOWTIDE_REAL(cudaMallocMipmappedArray, cudaMipmappedArray_t*, const cudaChannelFormatDesc*,
             cudaExtent, unsigned, unsigned);
LOWTIDE_REAL(cudaMallocAsync, void**, size_t, cudaStream_t);
LOWTIDE_REAL(cudaMallocAsync_ptsz, void**, size_t, cudaStream_t);
LOWTIDE_REAL(cudaMallocFromPoolAsync, void**, size_t, cudaMemPool_t, cudaStream_t);
LOWTIDE_REAL(cudaMallocFromPoolAsync_ptsz, void**, size_t, cudaMemPool_t, cudaStream_t);
LOWTIDE_REAL(cudaMallocHost, void**, size_t);
LOWTIDE_REAL(cudaHostAlloc, void**, size_t, unsigned);
LOWTIDE_REAL(cudaFree, void*);
LOWTIDE_REAL(cudaFreeArray, cudaArray_t);
LOWTIDE_REAL(cudaFreeMipmappedArray, cudaMipmappedArray_t);
LOWTIDE_REAL(cudaFreeAsync, void*, cudaStream_t);
LOWTIDE_REAL(cudaFreeAsync_ptsz, void*, cudaStream_t);
LOWTIDE_REAL(cudaFreeHost, void*);
LOWTIDE_REAL(cudaDeviceReset);
LOWTIDE_REAL(cudaGetDriverEntryPoint, const char*, void**, unsigned long long,
             cudaDriverEntryPointQueryResult*);
LOWTIDE_REAL(cudaGetDriverEntryPoint_ptsz, const char*, void**, unsigned long long,
             cudaDriverEntryPointQueryResult*);
LOWTIDE_REAL(cudaGetDriverEntryPointByVersion, const char*, void**, unsigned, unsigned long long,
             cudaDriverEntryPointQueryResult*);
LOWTIDE_REAL(cudaGetDriverEntryPointByVersion_ptsz, const char*, void**, unsigned,
             unsigned long long, cudaDriverEntryPointQueryResult*);

size_t texel_bytes(const cudaChannelFormatDesc* texel, unsigned flags) {
  if (texel == nullptr || (flags & (cudaArraySparse | cudaArrayDeferredMapping)) != 0) return 0;
  return static_cast<size_t>(texel->x + texel->y + texel->z + texel->w) / 8;
}

// A dimension of 0 is one that an array does not have.
size_t texels(const cudaExtent& extent) {
  return extent.width * std::max<size_t>(extent.height, 1) * std::max<size_t>(extent.depth, 1);
}

template <typename Real, typename Free>
cudaError_t free_by(Real& real, const void* address, const Free& free) {
  const Interception call;
  const bool known = call.freeing(key_of(address));
  return call.freed(known, free(real));
}

// What a lookup of the driver found becomes what counts.
cudaError_t watch(const Interception& call, cudaError_t error, const char* name, unsigned version,
                  void** function) {
  if (error == cudaSuccess && call.account() != nullptr && *function != nullptr)
    *function = watched_driver_function(name, version, *function);
  return error;
}
// Without a version the runtime gives its own, which the program cannot ask to be told.
constexpr unsigned kAnyVersion = 11030;

}  // namespace

LOWTIDE_IN_FRONT cudaMalloc(void** address, size_t bytes) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMalloc(address, bytes), address, bytes);
}

LOWTIDE_IN_FRONT cudaMallocManaged(void** address, size_t bytes, unsigned flags) {
  const Interception call;
  return call.allocated(kManagedPlace, real_cudaMallocManaged(address, bytes, flags), address,
                        bytes);
}

LOWTIDE_IN_FRONT cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  const Interception call;
  const cudaError_t error = real_cudaMallocPitch(address, pitch, width, height);
  const size_t row = error == cudaSuccess ? *pitch : width;
  return call.allocated(kCurrentDevice, error, address, row * height);
}

LOWTIDE_IN_FRONT cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  const Interception call;
  const cudaError_t error = real_cudaMalloc3D(pitched, extent);
  const size_t row = error == cudaSuccess ? pitched->pitch : extent.width;
  return call.allocated(kCurrentDevice, error, &pitched->ptr, row * extent.height * extent.depth);
}

LOWTIDE_IN_FRONT cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* texel,
                                 size_t width, size_t height, unsigned flags) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMallocArray(array, texel, width, height, flags),
                        array, texel_bytes(texel, flags) * texels({width, height, 0}));
}

LOWTIDE_IN_FRONT cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* texel,
                                   cudaExtent extent, unsigned flags) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMalloc3DArray(array, texel, extent, flags), array,
                        texel_bytes(texel, flags) * texels(extent));
}

LOWTIDE_IN_FRONT cudaMallocMipmappedArray(cudaMipmappedArray_t* array,
                                          const cudaChannelFormatDesc* texel, cudaExtent extent,
                                          unsigned levels, unsigned flags) {
  const Interception call;
  const cudaError_t error = real_cudaMallocMipmappedArray(array, texel, extent, levels, flags);
  size_t all_texels = 0;
  for (unsigned level = 0; level < std::min(levels, 32u); ++level)
    all_texels += texels({std::max<size_t>(extent.width >> level, 1), extent.height >> level,
                          extent.depth >> level});
  return call.allocated(kCurrentDevice, error, array, texel_bytes(texel, flags) * all_texels);
}

LOWTIDE_IN_FRONT cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMallocAsync(address, bytes, stream), address,
                        bytes);
}

LOWTIDE_IN_FRONT cudaMallocAsync_ptsz(void** address, size_t bytes, cudaStream_t stream) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMallocAsync_ptsz(address, bytes, stream), address,
                        bytes);
}

LOWTIDE_IN_FRONT cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_cudaMallocFromPoolAsync(address, bytes, pool, stream),
                        address, bytes);
}

LOWTIDE_IN_FRONT cudaMallocFromPoolAsync_ptsz(void** address, size_t bytes, cudaMemPool_t pool,
                                              cudaStream_t stream) {
  const Interception call;
  return call.allocated(kCurrentDevice,
                        real_cudaMallocFromPoolAsync_ptsz(address, bytes, pool, stream), address,
                        bytes);
}

LOWTIDE_IN_FRONT cudaMallocHost(void** address, size_t bytes) {
  const Interception call;
  return call.allocated(kPinnedPlace, real_cudaMallocHost(address, bytes), address, bytes);
}

LOWTIDE_IN_FRONT cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  const Interception call;
  return call.allocated(kPinnedPlace, real_cudaHostAlloc(address, bytes, flags), address, bytes);
}

LOWTIDE_IN_FRONT cudaFree(void* address) {
  return free_by(real_cudaFree, address, [=](auto& real) { return real(address); });
}

LOWTIDE_IN_FRONT cudaFreeArray(cudaArray_t array) {
  return free_by(real_cudaFreeArray, array, [=](auto& real) { return real(array); });
}

LOWTIDE_IN_FRONT cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  return free_by(real_cudaFreeMipmappedArray, array, [=](auto& real) { return real(array); });
}

LOWTIDE_IN_FRONT cudaFreeAsync(void* address, cudaStream_t stream) {
  return free_by(real_cudaFreeAsync, address, [=](auto& real) { return real(address, stream); });
}

LOWTIDE_IN_FRONT cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  return free_by(real_cudaFreeAsync_ptsz, address,
                 [=](auto& real) { return real(address, stream); });
}

LOWTIDE_IN_FRONT cudaFreeHost(void* address) {
  return free_by(real_cudaFreeHost, address, [=](auto& real) { return real(address); });
}

LOWTIDE_IN_FRONT cudaDeviceReset() {
  const Interception call;
  PreloadAccount* const account = call.account();
  const int device = account != nullptr ? Interception::current_device() : 0;
  const cudaError_t error = real_cudaDeviceReset();
  if (account != nullptr && error == cudaSuccess) account->reset(device);
  return error;
}

LOWTIDE_IN_FRONT cudaGetDriverEntryPoint(const char* name, void** function,
                                         unsigned long long flags,
                                         cudaDriverEntryPointQueryResult* status) {
  const Interception call;
  return watch(call, real_cudaGetDriverEntryPoint(name, function, flags, status), name, kAnyVersion,
               function);
}

LOWTIDE_IN_FRONT cudaGetDriverEntryPoint_ptsz(const char* name, void** function,
                                              unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* status) {
  const Interception call;
  return watch(call, real_cudaGetDriverEntryPoint_ptsz(name, function, flags, status), name,
               kAnyVersion, function);
}

LOWTIDE_IN_FRONT cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                  unsigned version, unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* status) {
  const Interception call;
  return watch(call, real_cudaGetDriverEntryPointByVersion(name, function, version, flags, status),
               name, version, function);
}

LOWTIDE_IN_FRONT cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function,
                                                       unsigned version, unsigned long long flags,
                                                       cudaDriverEntryPointQueryResult* status) {
  const Interception call;
  return watch(call,
               real_cudaGetDriverEntryPointByVersion_ptsz(name, function, version, flags, status),
               name, version, function);
}
