// cudaMalloc and its family: device memory is mapped host memory, aligned to 2 MiB as a device's
// is.
#include <sys/mman.h>

#include <cstdlib>

#include "capture.h"
#include "ranges.h"
#include "timeline.h"

using namespace cuda_double;

namespace {

constexpr uint64_t kAlignment = uint64_t{2} << 20;

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uintptr_t map_aligned(uint64_t bytes) {
  const uint64_t size = rounded(bytes);
  void* mapped = mmap(nullptr, size + kAlignment, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = rounded(begin);
  if (aligned > begin) munmap(mapped, aligned - begin);
  const uint64_t tail = begin + kAlignment - aligned;
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  return aligned;
}

cudaError_t allocate(void** pointer, uint64_t bytes, MemoryKind kind) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int device = current_device();
  // Nothing has more than all addresses; the sum of a mapping's size must not wrap around.
  if (bytes > uint64_t{1} << 46 || !DeviceBytes::of(device).take(bytes)) {
    return cudaErrorMemoryAllocation;
  }
  const uintptr_t begin = map_aligned(bytes);
  if (!begin) {
    DeviceBytes::of(device).give_back(bytes);
    return cudaErrorMemoryAllocation;
  }
  Ranges::instance().insert({begin, bytes, kind, device, true});
  *pointer = reinterpret_cast<void*>(begin);
  return cudaSuccess;
}

cudaError_t allocate_pinned(void** pointer, uint64_t bytes) {
  if (const auto error = refuse_while_capturing()) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  constexpr size_t kPage = 4096;
  if (posix_memalign(pointer, kPage, bytes) != 0) return cudaErrorMemoryAllocation;
  Ranges::instance().insert(
      {reinterpret_cast<uintptr_t>(*pointer), bytes, MemoryKind::kPinned, current_device(), true});
  return cudaSuccess;
}

// The range that begins at the pointer, where it is of one of these kinds; else says what it is.
Range* to_be_freed(void* pointer, MemoryKind kind, MemoryKind or_kind, const char* function) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  Range* range = Ranges::instance().at(begin);
  if (range && (range->kind == kind || range->kind == or_kind)) return range;
  const bool twice = !range && Ranges::instance().was_freed(begin, kind != MemoryKind::kPinned);
  report_misuse(twice ? Misuse::kDoubleFree : Misuse::kForeignFree,
                std::string(function) + " of " + hex(begin));
  return nullptr;
}

void report_use(const Range& range, const CUstream_st* next, const char* function) {
  const int user = Accesses::instance().unordered(range.begin, range.bytes, next);
  if (user < 0) return;
  report_misuse(Misuse::kFreedInUse, std::string(function) + " of " + std::to_string(range.bytes) +
                                         " bytes at " + hex(range.begin) +
                                         " while work of stream " + std::to_string(user) +
                                         " on them is not known to be complete");
}

void release(const Range& range) {
  const auto [begin, bytes, kind, device, accessible] = range;
  Ranges::instance().erase(begin);
  if (kind == MemoryKind::kPinned) {
    std::free(reinterpret_cast<void*>(begin));
    return;
  }
  // The memory goes, the addresses stay: nobody else may get them, see Ranges::was_freed.
  mmap(reinterpret_cast<void*>(begin), rounded(bytes), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  DeviceBytes::of(device).give_back(bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (const auto error = refuse_while_capturing()) return fail(error);
  return fail(allocate(pointer, bytes, MemoryKind::kDevice));
}

// Waits for the whole device, as the runtime does for memory of cudaMalloc; for memory of
// cudaMallocAsync its documentation leaves the waiting to the caller.
cudaError_t cudaFree(void* pointer) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (!pointer) return cudaSuccess;
  if (const auto error = refuse_while_capturing()) return fail(error);
  Range* range = to_be_freed(pointer, MemoryKind::kDevice, MemoryKind::kAsync, "cudaFree");
  if (!range) return fail(cudaErrorInvalidValue);
  if (range->kind == MemoryKind::kAsync || settings().strict) {
    report_use(*range, nullptr, "cudaFree");
  }
  Timeline::instance().synchronize_device(range->device);
  release(*range);
  return cudaSuccess;
}

// Memory of the default pool: each block comes from and goes to the device at once, so pools keep
// nothing and reuse nothing.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  if (stream->capture) return missing_runtime("cudaMallocAsync on a capturing stream");
  return fail(allocate(pointer, bytes, MemoryKind::kAsync));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  if (!pointer) return cudaSuccess;
  Range* range = to_be_freed(pointer, MemoryKind::kAsync, MemoryKind::kDevice, "cudaFreeAsync");
  if (!range) return fail(cudaErrorInvalidValue);
  report_use(*range, stream, "cudaFreeAsync");
  release(*range);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const DeviceBytes& device = DeviceBytes::of(current_device());
  *free = device.left();
  *total = device.limit();
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(allocate_pinned(pointer, bytes));
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(allocate_pinned(pointer, bytes));
}

cudaError_t cudaFreeHost(void* pointer) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (!pointer) return cudaSuccess;
  if (const auto error = refuse_while_capturing()) return fail(error);
  Range* range = to_be_freed(pointer, MemoryKind::kPinned, MemoryKind::kPinned, "cudaFreeHost");
  if (!range) return fail(cudaErrorInvalidValue);
  Timeline::instance().synchronize_device(range->device);
  release(*range);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (Ranges::instance().containing(begin)) return fail(cudaErrorHostMemoryAlreadyRegistered);
  Ranges::instance().insert({begin, bytes, MemoryKind::kRegistered, current_device(), true});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const Range* range = Ranges::instance().at(begin);
  if (!range || range->kind != MemoryKind::kRegistered) {
    return fail(cudaErrorHostMemoryNotRegistered);
  }
  Ranges::instance().erase(begin);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const Range* range = Ranges::instance().containing(reinterpret_cast<uintptr_t>(pointer));
  *attributes = {};
  attributes->hostPointer = const_cast<void*>(pointer);
  attributes->device = -2;  // what the runtime says of memory it does not know
  if (!range) return cudaSuccess;
  attributes->device = range->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->type = range->on_device() ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  if (range->on_device()) attributes->hostPointer = nullptr;
  return cudaSuccess;
}

uint64_t lowtide_double_bytes(int device) {
  Lock lock;
  return device_exists(device) ? DeviceBytes::of(device).bytes() : 0;
}

uint64_t lowtide_double_largest_bytes(int device) {
  Lock lock;
  return device_exists(device) ? DeviceBytes::of(device).largest() : 0;
}

void lowtide_double_reset_largest(int device) {
  Lock lock;
  if (device_exists(device)) DeviceBytes::of(device).reset_largest();
}

void lowtide_double_set_memory(int device, uint64_t bytes) {
  Lock lock;
  if (device_exists(device)) DeviceBytes::of(device).set_limit(bytes);
}

}  // extern "C"
