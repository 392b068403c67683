// Puts an allocator in front of whatever torch's CPU allocator is, at the lowest priority that
// torch accepts, so that a session can put its own back.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace lowtide::testing {

inline void put_cpu_allocator(c10::Allocator* wanted) {
  for (int priority = 0; priority < 256 && c10::GetAllocator(c10::kCPU) != wanted; ++priority) {
    c10::SetAllocator(c10::kCPU, wanted, static_cast<uint8_t>(priority));
  }
}

}  // namespace lowtide::testing
