// What Python tests of the doors cannot do through ctypes: hear the events of door A's ledger (they
// come under torch's locks, where Python must not run), hear what torch asks of door B, and be an
// allocator of a MemPool.
#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "hooks/pluggable_door.h"
#include "hooks/torch_cuda_allocator.h"

namespace {

struct Recorded {
  int64_t bytes;  // negative: freed
  void* stream;
};

class Recorder final : public lowtide::hooks::LedgerSink {
 public:
  void on_alloc(const lowtide::hooks::MemoryEvent& event) noexcept override {
    add({event.requested_bytes, event.stream});
  }
  void on_free(const lowtide::hooks::MemoryEvent& event) noexcept override {
    add({-event.requested_bytes, event.stream});
  }
  std::vector<Recorded> take() {
    const std::lock_guard lock(mutex_);
    return std::move(events_);
  }
  void add(Recorded event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<Recorded> events_;
};

Recorder recorder;
std::atomic<int64_t> pool_bytes{0};

}  // namespace

extern "C" {

// Door A's ledger of the device is heard of between the two.
void recorder_start(int device) {
  recorder.take();
  lowtide::hooks::TorchCudaAllocator::ledger(device).set_sink(&recorder);
}
void recorder_stop(int device) {
  lowtide::hooks::TorchCudaAllocator::ledger(device).set_sink(nullptr);
}

// What was heard of since the last call; writes at most `capacity` events, returns how many there
// were.
uint64_t recorder_take(int64_t* bytes, void** streams, uint64_t capacity) {
  const std::vector<Recorded> events = recorder.take();
  for (uint64_t i = 0; i < events.size() && i < capacity; ++i) {
    bytes[i] = events[i].bytes;
    streams[i] = events[i].stream;
  }
  return events.size();
}

// Door B's functions, always heard of.
void* recorder_lowtide_malloc(ssize_t bytes, int device, CUstream_st* stream) {
  void* const block = lowtide_malloc(bytes, device, stream);
  if (block != nullptr) recorder.add({bytes, stream});
  return block;
}
void recorder_lowtide_free(void* block, ssize_t bytes, int device, CUstream_st* stream) {
  if (block != nullptr) recorder.add({-bytes, stream});
  lowtide_free(block, bytes, device, stream);
}

// For torch.cuda.memory.CUDAPluggableAllocator.
void* recorder_malloc(ssize_t bytes, int, void*) {
  void* block = nullptr;
  if (cudaMalloc(&block, static_cast<size_t>(bytes)) != cudaSuccess) return nullptr;
  pool_bytes += bytes;
  return block;
}
void recorder_free(void* block, ssize_t bytes, int, void*) {
  pool_bytes -= bytes;
  cudaFree(block);
}
int64_t recorder_pool_bytes() { return pool_bytes; }
}
