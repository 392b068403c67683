// A CUDAAllocator that is another one: every virtual function of torch 2.15 and of torch 2.11 is
// passed on. What derives from it changes only what it means to change.
//
// Each function of torch's class is here, also those with a default: their defaults throw, warn or
// do nothing, and a decorator that misses one takes a feature away. tests/python/test_door_a.py
// compares this list with torch's header. Calls from any thread; `native` lives for ever.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#if TORCH_VERSION_MAJOR != 2 || (TORCH_VERSION_MINOR != 15 && TORCH_VERSION_MINOR != 11)
#error "Lowtide's CUDA allocator knows the virtual functions of torch 2.15 and 2.11 only"
#endif

namespace lowtide::hooks {

namespace native_cuda = c10::cuda::CUDACachingAllocator;

class ForwardingCudaAllocator : public native_cuda::CUDAAllocator {
 public:
  explicit ForwardingCudaAllocator(native_cuda::CUDAAllocator* native) : native_(native) {}
  [[nodiscard]] native_cuda::CUDAAllocator* native() const noexcept { return native_; }

  // c10::Allocator
  c10::DataPtr allocate(size_t bytes) override { return native_->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return native_->is_simple_data_ptr(data);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    native_->copy_data(to, from, bytes);
  }

  // c10::DeviceAllocator
  bool initialized() override { return native_->initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { native_->emptyCache(pool); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    native_->recordStream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return native_->getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    native_->resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { native_->resetPeakStats(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return native_->getMemoryInfo(device);
  }

  // CUDAAllocator: memory
  void* raw_alloc(size_t bytes) override { return native_->raw_alloc(bytes); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return native_->raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* block) override { native_->raw_delete(block); }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    native_->recordStream(data, stream);
  }
  void* getBaseAllocation(void* block, size_t* bytes) override {
    return native_->getBaseAllocation(block, bytes);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool peer_access) override {
    return native_->memcpyAsync(to, to_device, from, from_device, bytes, stream, peer_access);
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex to_access) override {
    native_->enablePeerAccess(device, to_access);
  }
  native_cuda::ShareableHandle shareIpcHandle(void* block) override {
    return native_->shareIpcHandle(block);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_->getIpcDevPtr(std::move(handle));
  }

  // CUDAAllocator: settings
  void init(int device_count) override { native_->init(device_count); }
  double getMemoryFraction(c10::DeviceIndex device) override {
    return native_->getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    native_->setMemoryFraction(fraction, device);
  }
  void enable(bool value) override { native_->enable(value); }
  bool isEnabled() const override { return native_->isEnabled(); }
  std::vector<native_cuda::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
  void cacheInfo(c10::DeviceIndex device, size_t* largest_block) override {
    native_->cacheInfo(device, largest_block);
  }
  std::string name() override { return native_->name(); }

  // CUDAAllocator: pools and graphs
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    native_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    native_->endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    native_->releasePool(device, pool);
  }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return native_->getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> of_pool) override {
    native_->createOrIncrefPool(device, pool, std::move(of_pool));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use_on_oom) override {
    native_->setUseOnOOM(device, pool, use_on_oom);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    native_->setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<native_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                  c10::MempoolId_t pool) override {
    return native_->getCheckpointState(device, pool);
  }
  native_cuda::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<native_cuda::AllocatorState> state) override {
    return native_->setCheckpointPoolState(device, std::move(state));
  }

  // CUDAAllocator: history and observers
  native_cuda::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override {
    return native_->snapshot(pool, include_traces);
  }
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordHistory(bool enabled, native_cuda::CreateContextFn recorder, size_t max_entries,
                     native_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override {
    native_->recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
  }
  void recordAnnotation(
      const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { native_->pushCompileContext(context); }
  void popCompileContext() override { native_->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { native_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
  void attachOutOfMemoryObserver(native_cuda::OutOfMemoryObserver observer) override {
    native_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(native_cuda::AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(std::move(tracker));
  }

#if TORCH_VERSION_MINOR >= 15
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return native_->allocateWithAddress(bytes, address);
  }
  void markCaptureBegin(c10::DeviceIndex device) override { native_->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { native_->markCaptureEnd(device); }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* block) override {
    return native_->getContextForPointer(block);
  }
  bool supportsUserMetadata() override { return native_->supportsUserMetadata(); }
  void annotateMemory(const void* block, const std::string& metadata) override {
    native_->annotateMemory(block, metadata);
  }
  void attachOomRejectionObserver(native_cuda::OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
#endif

 private:
  native_cuda::CUDAAllocator* native_;
};

}  // namespace lowtide::hooks
