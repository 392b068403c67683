// Virtual memory management: reserved addresses, physical handles, mappings.
//
// Physical memory is one file in memory, a piece of it per handle: a handle that is mapped twice,
// or elsewhere later, shows the same bytes. Its bytes count from cuMemCreate until it is released
// and nowhere mapped, as on a device.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "capture.h"
#include "ranges.h"
#include "timeline.h"

using namespace cuda_double;

namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

struct Physical {
  CUmemAllocationProp properties;
  uint64_t offset, bytes;
  int handles = 1;  // retained by the program
  int mappings = 0;
};

struct Mapping {
  uint64_t bytes;
  CUmemGenericAllocationHandle physical;
};

struct State {
  int file = memfd_create("cuda_double", MFD_CLOEXEC);
  uint64_t file_bytes = 0;
  CUmemGenericAllocationHandle next_handle = 1;
  std::map<CUmemGenericAllocationHandle, Physical> physical;
  std::map<uintptr_t, uintptr_t> reserved;  // begin -> end
  std::map<uintptr_t, Mapping> mappings;
};

State& state() {
  static State& result = *new State;
  return result;
}

bool whole(uint64_t bytes) { return bytes > 0 && bytes % kGranularity == 0; }

void let_go(std::map<CUmemGenericAllocationHandle, Physical>::iterator at) {
  const Physical& physical = at->second;
  if (physical.handles > 0 || physical.mappings > 0) return;
  fallocate(state().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(physical.offset), static_cast<off_t>(physical.bytes));
  DeviceBytes::of(physical.properties.location.id).give_back(physical.bytes);
  state().physical.erase(at);
}

bool inside_reservation(uintptr_t begin, uint64_t bytes) {
  auto at = state().reserved.upper_bound(begin);
  return at != state().reserved.begin() && begin + bytes <= std::prev(at)->second;
}

// The mappings that make up exactly these bytes; empty where they do not.
std::vector<uintptr_t> mapped(uintptr_t begin, uint64_t bytes) {
  std::vector<uintptr_t> result;
  const uintptr_t end = begin + bytes;
  while (begin < end) {
    const auto at = state().mappings.find(begin);
    if (at == state().mappings.end() || begin + at->second.bytes > end) return {};
    result.push_back(begin);
    begin += at->second.bytes;
  }
  return result;
}

bool reserve_in_place(uintptr_t begin, uint64_t bytes) {
  return mmap(reinterpret_cast<void*>(begin), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  CUDA_DOUBLE_CALL();
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (refuse_while_capturing() != cudaSuccess) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const int device = properties->location.id;
  if (!device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  // Handles of a file can be shared with another process, here and on a device; fabric's need
  // hardware that the double does not pretend to have.
  if (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
  State& all = state();
  if (!DeviceBytes::of(device).take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ftruncate(all.file, static_cast<off_t>(all.file_bytes + bytes)) != 0) {
    DeviceBytes::of(device).give_back(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = all.next_handle++;
  all.physical[*handle] = {*properties, all.file_bytes, bytes};
  all.file_bytes += bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto at = state().physical.find(handle);
  if (at == state().physical.end() || at->second.handles == 0) {
    const bool twice = handle < state().next_handle && handle > 0;
    report_misuse(twice ? Misuse::kDoubleFree : Misuse::kForeignFree,
                  "cuMemRelease of handle " + std::to_string(handle));
    return CUDA_ERROR_INVALID_VALUE;
  }
  --at->second.handles;
  let_go(at);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  alignment = std::max<uint64_t>(alignment, kGranularity);
  if (!whole(bytes) || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  void* mapping = mmap(nullptr, bytes + alignment, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(mapping, aligned - begin);
  const uint64_t tail = begin + alignment - aligned;
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  state().reserved[aligned] = aligned + bytes;
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto at = state().reserved.find(address);
  if (at == state().reserved.end() || at->second != address + bytes) {
    report_misuse(Misuse::kForeignFree,
                  "cuMemAddressFree of " + std::to_string(bytes) + " bytes at " + hex(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto first = state().mappings.lower_bound(address);
  if (first != state().mappings.end() && first->first < at->second) return CUDA_ERROR_INVALID_VALUE;
  // The addresses stay mapped without access: nobody else may get them, see Ranges::was_freed.
  state().reserved.erase(at);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  State& all = state();
  const auto at = all.physical.find(handle);
  if (at == all.physical.end() || offset != 0 || bytes != at->second.bytes ||
      !inside_reservation(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = all.mappings.lower_bound(address);
  const bool before = next != all.mappings.begin() &&
                      std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (before || (next != all.mappings.end() && next->first < address + bytes)) {
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, all.file,
           static_cast<off_t>(at->second.offset)) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++at->second.mappings;
  all.mappings[address] = {bytes, handle};
  Ranges::instance().insert(
      {address, bytes, MemoryKind::kMapped, at->second.properties.location.id, false});
  return CUDA_SUCCESS;
}

// Waits for nothing, unlike cudaFree: work on these bytes must be known to be complete.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const std::vector<uintptr_t> pieces = mapped(address, bytes);
  if (pieces.empty()) {
    const bool twice = Ranges::instance().was_freed(address, true);
    report_misuse(twice ? Misuse::kDoubleFree : Misuse::kForeignFree,
                  "cuMemUnmap of " + std::to_string(bytes) + " bytes at " + hex(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int user = Accesses::instance().unordered(address, bytes, nullptr);
  if (user >= 0) {
    report_misuse(Misuse::kFreedInUse, "cuMemUnmap of " + std::to_string(bytes) + " bytes at " +
                                           hex(address) + " while work of stream " +
                                           std::to_string(user) +
                                           " on them is not known to be complete");
  }
  for (const uintptr_t begin : pieces) {
    const auto at = state().mappings.find(begin);
    reserve_in_place(begin, at->second.bytes);
    Ranges::instance().erase(begin);
    const auto physical = state().physical.find(at->second.physical);
    --physical->second.mappings;
    let_go(physical);
    state().mappings.erase(at);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const std::vector<uintptr_t> pieces = mapped(address, bytes);
  if (pieces.empty() || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool allowed = access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mprotect(reinterpret_cast<void*>(address), bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
  for (const uintptr_t begin : pieces) Ranges::instance().at(begin)->accessible = allowed;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const Range* range = Ranges::instance().containing(reinterpret_cast<uintptr_t>(address));
  if (!range || range->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  *handle = state().mappings.at(range->begin).physical;
  ++state().physical.at(*handle).handles;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto at = state().physical.find(handle);
  if (at == state().physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = at->second.properties;
  return CUDA_SUCCESS;
}

// Of memory from cudaMalloc or of one mapping.
CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const Range* range = Ranges::instance().containing(address);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (begin) *begin = range->begin;
  if (bytes) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
