#include "memory_judge.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace lowtide::demo {
namespace {

// Requested bytes, counted around the allocator that torch had: sizes are known here without asking
// anybody. Tensors may outlive the judge, so the books are static. The context of a block is its
// address, as oneDNN's raw_allocate demands.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    if (!block) return block;
    void* data = block.get();
    const c10::Device device = block.device();
    const std::lock_guard<std::mutex> lock(books().mutex);
    books().live += static_cast<int64_t>(bytes);
    books().peak = std::max(books().peak, books().live);
    books().blocks.emplace(data, Block{std::move(block), static_cast<int64_t>(bytes)});
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  [[nodiscard]] c10::Allocator* inner() const { return inner_; }

  static int64_t live() {
    const std::lock_guard<std::mutex> lock(books().mutex);
    return books().live;
  }
  static int64_t peak() {
    const std::lock_guard<std::mutex> lock(books().mutex);
    return books().peak;
  }
  static void reset_peak() {
    const std::lock_guard<std::mutex> lock(books().mutex);
    books().peak = books().live;
  }

 private:
  struct Block {
    c10::DataPtr inner;
    int64_t bytes;
  };
  struct Books {
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
    int64_t live = 0;
    int64_t peak = 0;
  };
  // Never destroyed: a tensor may be released after main.
  static Books& books() {
    static Books& instance = *new Books;
    return instance;
  }

  static void release(void* data) {
    // Declared outside the lock: the inner deleter runs at the end, with no mutex held.
    std::unordered_map<void*, Block>::node_type node;
    const std::lock_guard<std::mutex> lock(books().mutex);
    node = books().blocks.extract(data);
    if (node) books().live -= node.mapped().bytes;  // oneDNN frees the null of an empty request
  }

  c10::Allocator* inner_;
};

class CpuJudge : public MemoryJudge {
 public:
  CpuJudge() : counter_(c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, &counter_); }
  ~CpuJudge() override { c10::SetAllocator(c10::kCPU, counter_.inner()); }
  CpuJudge(const CpuJudge&) = delete;
  CpuJudge& operator=(const CpuJudge&) = delete;

  void begin_step() override {
    CountingAllocator::reset_peak();
    begin_bytes_ = CountingAllocator::live();
  }
  Peaks peaks() override { return {begin_bytes_, CountingAllocator::peak(), -1, -1}; }

 private:
  CountingAllocator counter_;
  int64_t begin_bytes_ = 0;
};

class CudaJudge : public MemoryJudge {
 public:
  void begin_step() override {
    allocator().resetPeakStats(0);
    begin_bytes_ = allocator().getDeviceStats(0).requested_bytes[kAggregate].current;
  }
  Peaks peaks() override {
    const auto stats = allocator().getDeviceStats(0);
    return {begin_bytes_, stats.requested_bytes[kAggregate].peak,
            stats.allocated_bytes[kAggregate].peak, stats.reserved_bytes[kAggregate].peak};
  }

 private:
  static constexpr auto kAggregate =
      static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  static c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::kCUDA); }
  int64_t begin_bytes_ = 0;
};

}  // namespace

std::unique_ptr<MemoryJudge> make_memory_judge(Device device) {
  if (device == Device::cuda) return std::make_unique<CudaJudge>();
  return std::make_unique<CpuJudge>();
}

}  // namespace lowtide::demo
