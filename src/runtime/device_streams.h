// The streams of a session's device: which one is current, and how work on one is put behind work
// on another. On the CPU, where all is in order, everything here does nothing.
//
// The rule it serves: recomputation runs on the stream of the backward node that asks for it. What
// it reads was written on the streams of the forward; what it makes may be read by a node of
// another stream later. Calls from any thread, for the stream that is current on it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace lowtide::runtime {

class DeviceStreams {
 public:
  explicit DeviceStreams(c10::Device device);

  [[nodiscard]] c10::Device device() const { return device_; }
  // Do ops of the device return before their work is done?
  [[nodiscard]] bool asynchronous() const { return guard_.has_value(); }
  // The current stream; 0 on the CPU.
  [[nodiscard]] c10::StreamId current() const {
    return guard_.has_value() ? guard_->getStream(device_).id() : 0;
  }
  // What is put on the current stream from now on runs after what is on `other` by now.
  void wait_for(c10::StreamId other) const;
  // The current stream reads the storage, which belongs to another: it is used again after that.
  void read_on_current(const c10::StorageImpl& storage) const;
  // Behind what is on the current stream by now; its time is known once the device is there.
  // REQUIRES: asynchronous().
  [[nodiscard]] c10::Event timestamp() const;
  // Returns when all work of the device is done.
  void synchronize() const;

 private:
  c10::Device device_;
  std::optional<c10::impl::VirtualGuardImpl> guard_;
};

}  // namespace lowtide::runtime
