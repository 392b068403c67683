#include "runtime/device_streams.h"

namespace lowtide::runtime {

DeviceStreams::DeviceStreams(c10::Device device) : device_(device) {
  if (!device.is_cpu()) guard_.emplace(device.type());
}

void DeviceStreams::wait_for(c10::StreamId other) const {
  if (!guard_.has_value() || other == current()) return;
  c10::Event event(device_.type());
  event.record(c10::Stream(c10::Stream::UNSAFE, device_, other));
  event.block(guard_->getStream(device_));
}

void DeviceStreams::read_on_current(const c10::StorageImpl& storage) const {
  if (!guard_.has_value() || storage.device() != device_ || storage.nbytes() == 0) return;
  guard_->recordDataPtrOnStream(storage.data_ptr(), guard_->getStream(device_));
}

c10::Event DeviceStreams::timestamp() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // that is: with its time
  event.record(guard_->getStream(device_));
  return event;
}

void DeviceStreams::synchronize() const {
  if (guard_.has_value()) guard_->synchronizeDevice(device_.index());
}

}  // namespace lowtide::runtime
