// A figure and the most it ever was. No thread safety: its owner's lock guards it.
#pragma once

#include <cstdint>

namespace lowtide::hooks {

struct Counter {  // bytes (or calls)
  int64_t current = 0;
  int64_t peak = 0;
  void add(int64_t amount) noexcept {
    current += amount;
    if (current > peak) peak = current;
  }
};

}  // namespace lowtide::hooks
