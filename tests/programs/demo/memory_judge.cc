#include "memory_judge.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "counting/counting_allocator.h"
#include "counting/mapping_counter.h"

namespace lowtide::demo {
namespace {

using counting::CountingAllocator;

class CpuJudge : public MemoryJudge {
 public:
  void begin_step() override {
    CountingAllocator::reset_peak();
    counting::reset_mapped_peak();
    begin_bytes_ = CountingAllocator::bytes().current;
  }
  Peaks peaks() override {
    // Without Lowtide's allocator nothing is mapped by it, and this judge has no word on reserved.
    const int64_t mapped = counting::mapped_bytes().peak;
    return {begin_bytes_, CountingAllocator::bytes().peak, -1, mapped > 0 ? mapped : -1};
  }

 private:
  CountingAllocator allocator_;
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
