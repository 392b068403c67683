// Where a device core gets its memory and the order of its streams from: the machine's real device
// behind a few calls.
//
// One backend per device. Thread safety: the core calls it under its own lock; a backend used by
// one core needs none. Nothing is thrown: failure is a null pointer or a named result. All calls
// leave the thread's current device as it was.
#pragma once

#include <cstddef>

namespace lowtide::hooks {

using DeviceStream = void*;  // a cudaStream_t; null = the device's default stream
using DeviceEvent = void*;   // a cudaEvent_t

struct DeviceMemory {  // bytes, as the device sees them: of all processes together
  size_t free = 0;
  size_t total = 0;
};

class DeviceBackend {
 public:
  enum class Recorded { yes, capturing, failed };

  virtual ~DeviceBackend() = default;
  // `bytes` is a multiple of 2 MiB, the result aligned to 512 bytes at least. Null when the device
  // has not that much left; that it failed is then no pending error of the thread.
  virtual void* acquire(size_t bytes) noexcept = 0;
  // Why the last acquire() failed, where it was not for lack of memory: what the device says of
  // itself, after which nothing works any more. Null otherwise.
  [[nodiscard]] virtual const char* trouble() const noexcept { return nullptr; }
  // Returns when no work on the device uses the memory any more.
  virtual void give_back(void* base, size_t bytes) noexcept = 0;

  // An event behind all work that is on the stream now. `capturing`: the stream's work is being
  // captured, and no event outside of the capture may stand behind it.
  virtual Recorded record(DeviceStream stream, DeviceEvent& event) noexcept = 0;
  // Whether all work before the event is complete.
  virtual bool complete(DeviceEvent event) noexcept = 0;
  virtual void wait(DeviceEvent event) noexcept = 0;
  // The event is nobody's now and may be what record() gives next.
  virtual void recycle(DeviceEvent event) noexcept = 0;
  // For streams that cannot have an event: waits for all of the work of one stream, or of all.
  virtual void wait_for_stream(DeviceStream stream) noexcept = 0;
  virtual void wait_for_device() noexcept = 0;

  virtual bool capturing(DeviceStream stream) noexcept = 0;
  virtual DeviceMemory memory() noexcept = 0;
  virtual const char* name() const noexcept = 0;
};

}  // namespace lowtide::hooks
