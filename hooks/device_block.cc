#include "hooks/device_block.h"

#include <functional>
#include <new>
#include <tuple>

namespace lowtide::hooks {

bool ByFit::operator()(const DeviceBlock* a, const DeviceBlock* b) const noexcept {
  if (a->segment->stream != b->segment->stream) {
    return std::less<>()(a->segment->stream, b->segment->stream);
  }
  return std::tie(a->bytes, a->segment->serial, a->base) <
         std::tie(b->bytes, b->segment->serial, b->base);
}

bool ByFit::operator()(const DeviceBlock* a, const DeviceFit& fit) const noexcept {
  if (a->segment->stream != fit.stream) return std::less<>()(a->segment->stream, fit.stream);
  return a->bytes < fit.bytes;
}

std::unique_ptr<DeviceBlock> DeviceBlock::make(DeviceSegment* segment, std::byte* base,
                                               size_t bytes) noexcept {
  try {
    auto block = std::make_unique<DeviceBlock>();
    block->base = base;
    block->bytes = bytes;
    block->segment = segment;
    FreeBlocks nursery;
    nursery.insert(block.get());
    block->node = nursery.extract(nursery.begin());
    return block;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace lowtide::hooks
