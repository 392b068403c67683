// Records the memory requests of a device as a placement plan needs them: per stream, in order,
// each with the moment its memory could be used again, and the program's step marks.
//
// Time is counted in requests of the same stream, so a free that comes a little sooner or later
// between two of them is the same free. Requests that a plan will never serve (of a capture, of a
// pool) are not to be told.
//
// Thread safety: all calls; of one block `allocated` comes before `freed`. Its lock is a leaf: it
// calls nobody. Nothing is thrown but std::bad_alloc by start() and take(); where there is no
// memory for a request the recording is marked incomplete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "hooks/device_backend.h"
#include "hooks/flat_table.h"
#include "hooks/light_lock.h"

namespace lowtide::hooks {

struct RecordedBlock {
  static constexpr int64_t kAlive = -1;
  int64_t bytes = 0;  // rounded to 512
  int32_t op = -1;
  int32_t stream = 0;     // index into Recording::streams
  int64_t died = kAlive;  // requests of the stream before its memory was free again
};

struct RecordedStream {
  DeviceStream stream = nullptr;
  std::deque<RecordedBlock> blocks;  // in the order of the requests
  std::vector<int64_t> marks;        // requests of the stream before each step mark
};

struct Recording {
  std::deque<RecordedStream> streams;  // in the order in which they came; they keep their places
  bool complete = true;
};

class PlacementRecorder {
 public:
  void start();                    // forgets what was recorded before
  [[nodiscard]] Recording take();  // and stops
  [[nodiscard]] bool recording() const noexcept {
    return recording_.load(std::memory_order_relaxed);
  }

  void allocated(const void* address, size_t bytes, DeviceStream stream, int32_t op) noexcept;
  // Its memory may be used again. Unknown addresses are ignored.
  void freed(const void* address) noexcept;
  void mark() noexcept;
  [[nodiscard]] int64_t marks() const noexcept;

 private:
  [[nodiscard]] int32_t index_of(DeviceStream stream);
  void forget();

  std::atomic<bool> recording_{false};
  mutable LightLock lock_;  // of what follows
  Recording now_;
  FlatTable<RecordedBlock> live_;
  size_t marks_ = 0;
};

}  // namespace lowtide::hooks
