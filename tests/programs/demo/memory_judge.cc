#include "memory_judge.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace lowtide::demo {
namespace {

constexpr auto kAggregate =
    static_cast<size_t>(c10::CachingDeviceAllocator::StatType::AGGREGATE);

class CudaJudge : public MemoryJudge {
 public:
  void begin_step() override { allocator().resetPeakStats(0); }
  Peaks peaks() override {
    const auto stats = allocator().getDeviceStats(0);
    return {stats.requested_bytes[kAggregate].peak, stats.allocated_bytes[kAggregate].peak,
            stats.reserved_bytes[kAggregate].peak};
  }

 private:
  static c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::kCUDA); }
};

class NoJudge : public MemoryJudge {
 public:
  void begin_step() override {}
  Peaks peaks() override { return {}; }
};

}  // namespace

std::unique_ptr<MemoryJudge> make_memory_judge(Device device) {
  if (device == Device::cuda) return std::make_unique<CudaJudge>();
  return std::make_unique<NoJudge>();
}

}  // namespace lowtide::demo
