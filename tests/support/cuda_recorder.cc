// What Python tests of door A cannot do through ctypes: hear the events of a ledger (they come
// under torch's locks, where Python must not run), and be an allocator of a MemPool.
#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

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

 private:
  void add(Recorded event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::mutex mutex_;
  std::vector<Recorded> events_;
};

Recorder recorder;
std::atomic<int64_t> pool_bytes{0};

}  // namespace

extern "C" {

void recorder_start(int device) {
  recorder.take();
  lowtide::hooks::TorchCudaAllocator::ledger(device).set_sink(&recorder);
}

// Ends the recording; writes at most `capacity` events and returns how many there were.
uint64_t recorder_stop(int device, int64_t* bytes, void** streams, uint64_t capacity) {
  lowtide::hooks::TorchCudaAllocator::ledger(device).set_sink(nullptr);
  const std::vector<Recorded> events = recorder.take();
  for (uint64_t i = 0; i < events.size() && i < capacity; ++i) {
    bytes[i] = events[i].bytes;
    streams[i] = events[i].stream;
  }
  return events.size();
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
