#include "hooks/pluggable_door.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "core/error.h"
#include "hooks/backend_cuda.h"
#include "hooks/cuda_runtime.h"
#include "hooks/device_core.h"
#include "hooks/device_stats_json.h"
#include "hooks/torch_errors_loader.h"

namespace lowtide::hooks {
namespace {

constexpr int kMostDevices = 64;

// Cores by device. They are never destroyed: memory is freed until the process's very end.
std::array<std::atomic<DeviceCore*>, kMostDevices> door_cores;
// Frees for devices on which nothing was allocated yet: each is of an unknown block.
std::array<std::atomic<int64_t>, kMostDevices> frees_before_cores;

thread_local std::string door_error;
thread_local std::string door_stats;

void say(const std::string& text) noexcept { std::fprintf(stderr, "lowtide: %s\n", text.c_str()); }

// Null where nothing was allocated on the device yet.
DeviceCore* known_core(int device) noexcept {
  if (device < 0 || device >= kMostDevices) return nullptr;
  return door_cores[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

// Null, and why, where there is no such device. No lock: a fork might leave it locked.
DeviceCore* make_core(int device, std::string& why_not) {
  std::unique_ptr<DeviceBackend> backend = make_cuda_backend(device, &why_not);
  if (backend == nullptr) return nullptr;
  if (device >= kMostDevices) {
    why_not = "device " + std::to_string(device) + " is one more than the " +
              std::to_string(kMostDevices) + " that Lowtide serves";
    return nullptr;
  }
  auto core = std::make_unique<DeviceCore>(std::move(backend));
  DeviceCore* expected = nullptr;
  std::atomic<DeviceCore*>& slot = door_cores[static_cast<size_t>(device)];
  if (slot.compare_exchange_strong(expected, core.get(), std::memory_order_acq_rel)) {
    return core.release();
  }
  return expected;  // another thread was faster
}

DeviceCore* core_of(int device, std::string* why_not = nullptr) noexcept {
  if (DeviceCore* const core = known_core(device)) return core;
  try {
    std::string ignored;
    return make_core(device, why_not != nullptr ? *why_not : ignored);
  } catch (...) {
    return nullptr;
  }
}

void* allocate(ssize_t bytes, int device, CUstream_st* stream) noexcept {
  if (bytes == 0) return nullptr;
  try {
    std::string why_not = "out of host memory";
    DeviceCore* const core = core_of(device, &why_not);
    if (core == nullptr) {
      door_error = "cannot allocate on device " + std::to_string(device) + ": " + why_not;
      return nullptr;
    }
    const auto size = static_cast<size_t>(bytes);  // a negative one is larger than any device
    void* const block = core->allocate(size, stream);
    if (block == nullptr) [[unlikely]]
      door_error = core->shortage(size);
    return block;
  } catch (...) {
    return nullptr;  // no memory for the text
  }
}

// For a program without torch that checks CUDA's errors only: one is pending.
void leave_cuda_error() noexcept {
  const CudaRuntime* const cuda = CudaRuntime::find();
  void* none = nullptr;
  if (cuda != nullptr && cuda->malloc(&none, PTRDIFF_MAX) == cudaSuccess) cuda->free(none);
}

void report_unknown(const char* what, const void* block) noexcept {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  std::fprintf(stderr,
               "lowtide: %s of %p, which is no live block of lowtide_malloc on this device (freed "
               "twice, or another allocator's); ignored, and so are further ones. Fix: free each "
               "block once, with the allocator and device it came from\n",
               what, block);
}

// torch's graph trees send all that a thread allocates to a pool, whatever the stream; a graph
// takes only what its own capture allocates, and none is underway yet. The trees would go on to ask
// the allocator what lives in the pool, which torch's pluggable one cannot pass on to us.
void refuse_graph_trees(const std::function<bool(CUstream_st*)>& filter) {
  if (!filter(nullptr)) return;
  throw InvalidInput(
      "torch.compile with CUDA graphs (mode=\"reduce-overhead\" or \"max-autotune\") asks the "
      "allocator what lives in a graph's pool, and torch's CUDAPluggableAllocator, behind which "
      "Lowtide's functions are, cannot answer. Fix: use Lowtide's door A (liblowtide_cuda.so, "
      "lowtide_cuda_install()) instead of the pluggable allocator, or compile without graphs: the "
      "default mode, or mode=\"max-autotune-no-cudagraphs\"");
}

template <typename Visit>
void for_each_core(Visit visit) noexcept {
  for (std::atomic<DeviceCore*>& slot : door_cores) {
    if (DeviceCore* const core = slot.load(std::memory_order_acquire)) visit(*core);
  }
}

}  // namespace
}  // namespace lowtide::hooks

using namespace lowtide::hooks;

extern "C" {

void* lowtide_malloc_or_null(ssize_t bytes, int device, CUstream_st* stream) {
  return allocate(bytes, device, stream);
}

void* lowtide_malloc(ssize_t bytes, int device, CUstream_st* stream) {
  void* const block = allocate(bytes, device, stream);
  if (block == nullptr && bytes != 0) [[unlikely]] {
    if (const auto throw_torch_error = torch_out_of_memory_thrower()) {
      throw_torch_error(door_error.c_str());
    }
    say(door_error);
    leave_cuda_error();
  }
  return block;
}

void lowtide_free(void* block, ssize_t /*bytes*/, int device, CUstream_st* /*stream*/) {
  if (block == nullptr) return;
  DeviceCore* const core = known_core(device);
  if (core != nullptr && core->free(block)) [[likely]]
    return;
  if (core == nullptr && device >= 0 && device < kMostDevices) {
    ++frees_before_cores[static_cast<size_t>(device)];
  }
  report_unknown("free", block);
}

void lowtide_init(int /*devices*/) {
  std::string why_not;
  if (CudaRuntime::find(&why_not) == nullptr) say(why_not);
}

void lowtide_empty_cache() {
  for_each_core([](DeviceCore& core) { core.trim(); });
}

void lowtide_set_memory_fraction(double fraction, int device) {
  DeviceCore* const core = core_of(device);
  if (core == nullptr || !(fraction >= 0)) return;
  const auto total = static_cast<double>(core->device_memory().total);
  core->set_limit(fraction >= 1 ? DeviceCore::kNoLimit : std::llround(fraction * total));
}

int lowtide_set_memory_limit(int64_t bytes, int device) {
  DeviceCore* const core = core_of(device);
  if (core == nullptr) return -1;
  core->set_limit(bytes < 0 ? DeviceCore::kNoLimit : bytes);
  return 0;
}

void* lowtide_base_allocation(void* block, size_t* bytes) {
  Extent found;
  for_each_core([&](DeviceCore& core) {
    if (found.base == nullptr) found = core.segment_of(block);
  });
  if (bytes != nullptr) *bytes = found.bytes;
  return found.base != nullptr ? found.base : block;
}

void lowtide_record_stream(void* block, CUstream_st* stream) {
  if (block == nullptr) return;
  bool known = false;
  for_each_core([&](DeviceCore& core) {
    if (!known && core.requested_size(block) != 0) known = core.use_on(block, stream);
  });
  if (!known) report_unknown("record_stream", block);
}

void lowtide_begin_allocate_to_pool(int device, PoolId id,
                                    std::function<bool(CUstream_st*)> filter) {
  refuse_graph_trees(filter);
  try {
    DeviceCore* const core = core_of(device);
    const auto accepts = [filter = std::move(filter)](DeviceStream stream) {
      return filter(static_cast<CUstream_st*>(stream));
    };
    if (core != nullptr && core->begin_pool(id, accepts)) return;
  } catch (...) {
  }
  say("no memory for the books of a graph's pool; do not replay that graph");
}

void lowtide_end_allocate_to_pool(int device, PoolId id) {
  if (DeviceCore* const core = known_core(device)) core->end_pool(id);
}

void lowtide_release_pool(int device, PoolId id) {
  if (DeviceCore* const core = known_core(device)) core->release_pool(id);
}

const char* lowtide_stats_json(int device) {
  try {
    DeviceCore* const core = known_core(device);
    const bool served = device >= 0 && device < kMostDevices;
    const int64_t before = served ? frees_before_cores[static_cast<size_t>(device)].load() : 0;
    door_stats = core == nullptr
                     ? to_json(DeviceStats{}, DeviceCore::kNoLimit, before)
                     : to_json(core->stats(), core->limit(), before + core->invalid_frees());
    return door_stats.c_str();
  } catch (...) {
    return "{}";
  }
}

void lowtide_reset_peak_stats(int device) {
  if (DeviceCore* const core = known_core(device)) core->reset_peaks();
}

void lowtide_reset_accumulated_stats(int device) {
  if (DeviceCore* const core = known_core(device)) core->reset_sums();
}

const char* lowtide_last_error() { return door_error.c_str(); }

}  // extern "C"
