#include "hooks/cuda_preload_driver.h"

#include <cuda.h>

#include <atomic>
#include <cstring>

#include "hooks/cuda_preload_process.h"

namespace lowtide::hooks {
namespace {

// The real functions behind one watched name. A lookup may find another one when it is asked in
// another way (per-thread default streams): there is room for two. Called with `slot` 0 or 1.
template <typename Function>
class Originals {
 public:
  // Which of the two functions to hand out; `found` itself where there are already others.
  void* in_front_of(void* found, Function* first, Function* second) noexcept {
    Function* const front[] = {first, second};
    for (int slot = 0; slot < 2; ++slot) {
      void* known = nullptr;
      if (of_[slot].compare_exchange_strong(known, found) || known == found) {
        return reinterpret_cast<void*>(front[slot]);
      }
    }
    return found;
  }
  template <typename... Arguments>
  CUresult operator()(int slot, Arguments... arguments) const noexcept {
    return reinterpret_cast<Function*>(of_[slot].load(std::memory_order_acquire))(arguments...);
  }

 private:
  std::atomic<void*> of_[2] = {};
};

int place_of(const CUmemLocation& location) noexcept {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : kPinnedPlace;
}

constinit Originals<decltype(cuMemCreate)> real_create;
template <int slot>
CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  const Interception call;
  const CUresult result = real_create(slot, handle, bytes, properties, flags);
  if (properties == nullptr) return result;
  return call.created(place_of(properties->location), result, handle, bytes);
}

constinit Originals<decltype(cuMemRelease)> real_release;
template <int slot>
CUresult release(CUmemGenericAllocationHandle handle) {
  const Interception call;
  PreloadAccount* const account = call.account();
  const bool known = account != nullptr && account->released(handle);
  return call.freed(known, real_release(slot, handle));
}

constinit Originals<decltype(cuMemRetainAllocationHandle)> real_retain;
template <int slot>
CUresult retain(CUmemGenericAllocationHandle* handle, void* address) {
  const Interception call;
  const CUresult result = real_retain(slot, handle, address);
  if (PreloadAccount* const account = call.account(); account != nullptr && result == CUDA_SUCCESS)
    account->retained(*handle);
  return result;
}

constinit Originals<decltype(cuMemImportFromShareableHandle)> real_import;
template <int slot>
CUresult import_shared(CUmemGenericAllocationHandle* handle, void* shared,
                       CUmemAllocationHandleType type) {
  const Interception call;
  const CUresult result = real_import(slot, handle, shared, type);
  if (PreloadAccount* const account = call.account(); account != nullptr && result == CUDA_SUCCESS)
    account->imported(*handle);
  return result;
}

constinit Originals<decltype(cuMemMap)> real_map;
template <int slot>
CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  const Interception call;
  const CUresult result = real_map(slot, address, bytes, offset, handle, flags);
  if (PreloadAccount* const account = call.account(); account != nullptr && result == CUDA_SUCCESS)
    account->mapped(address, bytes, handle);
  return result;
}

constinit Originals<decltype(cuMemUnmap)> real_unmap;
template <int slot>
CUresult unmap(CUdeviceptr address, size_t bytes) {
  const Interception call;
  if (PreloadAccount* const account = call.account(); account != nullptr)
    account->unmapped(address, bytes);
  return real_unmap(slot, address, bytes);
}

constinit Originals<decltype(cuMemAlloc)> real_alloc;
template <int slot>
CUresult alloc(CUdeviceptr* address, size_t bytes) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_alloc(slot, address, bytes), address, bytes);
}

constinit Originals<decltype(cuMemAllocPitch)> real_alloc_pitch;
template <int slot>
CUresult alloc_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                     unsigned element) {
  const Interception call;
  const CUresult result = real_alloc_pitch(slot, address, pitch, width, height, element);
  const size_t row = result == CUDA_SUCCESS ? *pitch : width;
  return call.allocated(kCurrentDevice, result, address, row * height);
}

constinit Originals<decltype(cuMemAllocManaged)> real_alloc_managed;
template <int slot>
CUresult alloc_managed(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const Interception call;
  return call.allocated(kManagedPlace, real_alloc_managed(slot, address, bytes, flags), address,
                        bytes);
}

constinit Originals<decltype(cuMemFree)> real_free;
template <int slot>
CUresult free_block(CUdeviceptr address) {
  const Interception call;
  const bool known = call.freeing(address);
  return call.freed(known, real_free(slot, address));
}

constinit Originals<decltype(cuMemAllocAsync)> real_alloc_async;
template <int slot>
CUresult alloc_async(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_alloc_async(slot, address, bytes, stream), address,
                        bytes);
}

constinit Originals<decltype(cuMemAllocFromPoolAsync)> real_alloc_from_pool;
template <int slot>
CUresult alloc_from_pool(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const Interception call;
  return call.allocated(kCurrentDevice, real_alloc_from_pool(slot, address, bytes, pool, stream),
                        address, bytes);
}

constinit Originals<decltype(cuMemFreeAsync)> real_free_async;
template <int slot>
CUresult free_async(CUdeviceptr address, CUstream stream) {
  const Interception call;
  const bool known = call.freeing(address);
  return call.freed(known, real_free_async(slot, address, stream));
}

constinit Originals<decltype(cuMemHostAlloc)> real_host_alloc;
template <int slot>
CUresult host_alloc(void** address, size_t bytes, unsigned flags) {
  const Interception call;
  return call.allocated(kPinnedPlace, real_host_alloc(slot, address, bytes, flags), address, bytes);
}

constinit Originals<decltype(cuMemAllocHost)> real_alloc_host;
template <int slot>
CUresult alloc_host(void** address, size_t bytes) {
  const Interception call;
  return call.allocated(kPinnedPlace, real_alloc_host(slot, address, bytes), address, bytes);
}

constinit Originals<decltype(cuMemFreeHost)> real_free_host;
template <int slot>
CUresult free_host(void* address) {
  const Interception call;
  const bool known = call.freeing(key_of(address));
  return call.freed(known, real_free_host(slot, address));
}

// Who asks for the lookup itself gets one that answers as the runtime's does.
constinit Originals<decltype(cuGetProcAddress)> real_lookup;
template <int slot>
CUresult lookup(const char* name, void** function, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status) {
  const CUresult result = real_lookup(slot, name, function, version, flags, status);
  if (result == CUDA_SUCCESS && *function != nullptr)
    *function = watched_driver_function(name, static_cast<unsigned>(version), *function);
  return result;
}

struct Watched {
  const char* name;
  unsigned least_version;
  void* (*in_front_of)(void* found);
};

constexpr unsigned kWideSizes = 3020;  // since then sizes are size_t
constexpr unsigned kLookupStatus = 12000;
constexpr Watched kWatched[] = {
    {"cuMemCreate", kWideSizes,
     [](void* found) { return real_create.in_front_of(found, create<0>, create<1>); }},
    {"cuMemRelease", kWideSizes,
     [](void* found) { return real_release.in_front_of(found, release<0>, release<1>); }},
    {"cuMemRetainAllocationHandle", kWideSizes,
     [](void* found) { return real_retain.in_front_of(found, retain<0>, retain<1>); }},
    {"cuMemImportFromShareableHandle", kWideSizes,
     [](void* found) {
       return real_import.in_front_of(found, import_shared<0>, import_shared<1>);
     }},
    {"cuMemMap", kWideSizes,
     [](void* found) { return real_map.in_front_of(found, map<0>, map<1>); }},
    {"cuMemUnmap", kWideSizes,
     [](void* found) { return real_unmap.in_front_of(found, unmap<0>, unmap<1>); }},
    {"cuMemAlloc", kWideSizes,
     [](void* found) { return real_alloc.in_front_of(found, alloc<0>, alloc<1>); }},
    {"cuMemAllocPitch", kWideSizes,
     [](void* found) {
       return real_alloc_pitch.in_front_of(found, alloc_pitch<0>, alloc_pitch<1>);
     }},
    {"cuMemAllocManaged", kWideSizes,
     [](void* found) {
       return real_alloc_managed.in_front_of(found, alloc_managed<0>, alloc_managed<1>);
     }},
    {"cuMemFree", kWideSizes,
     [](void* found) { return real_free.in_front_of(found, free_block<0>, free_block<1>); }},
    {"cuMemAllocAsync", kWideSizes,
     [](void* found) {
       return real_alloc_async.in_front_of(found, alloc_async<0>, alloc_async<1>);
     }},
    {"cuMemAllocFromPoolAsync", kWideSizes,
     [](void* found) {
       return real_alloc_from_pool.in_front_of(found, alloc_from_pool<0>, alloc_from_pool<1>);
     }},
    {"cuMemFreeAsync", kWideSizes,
     [](void* found) { return real_free_async.in_front_of(found, free_async<0>, free_async<1>); }},
    {"cuMemHostAlloc", kWideSizes,
     [](void* found) { return real_host_alloc.in_front_of(found, host_alloc<0>, host_alloc<1>); }},
    {"cuMemAllocHost", kWideSizes,
     [](void* found) { return real_alloc_host.in_front_of(found, alloc_host<0>, alloc_host<1>); }},
    {"cuMemFreeHost", kWideSizes,
     [](void* found) { return real_free_host.in_front_of(found, free_host<0>, free_host<1>); }},
    {"cuGetProcAddress", kLookupStatus,
     [](void* found) { return real_lookup.in_front_of(found, lookup<0>, lookup<1>); }},
};

}  // namespace

void* watched_driver_function(const char* name, unsigned version, void* found) noexcept {
  for (const Watched& watched : kWatched) {
    if (std::strcmp(watched.name, name) == 0 && version >= watched.least_version)
      return watched.in_front_of(found);
  }
  return found;
}

}  // namespace lowtide::hooks
