// What a caching allocator asks for room when nothing that it holds can be given back any more.
#pragma once

#include <cstdint>

namespace lowtide::hooks {

// Frees live memory on demand. `need_bytes`: by how much reserved + request exceeds the limit after
// cached segments are gone. Returns the bytes it freed, 0 = nothing left to free. noexcept.
class PressureHandler {
 public:
  virtual ~PressureHandler() = default;
  virtual int64_t free_memory(int64_t need_bytes, int64_t request_bytes) noexcept = 0;
};

}  // namespace lowtide::hooks
