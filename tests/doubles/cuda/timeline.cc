#include "timeline.h"

#include <algorithm>

namespace cuda_double {
namespace {

void raise(VectorClock& clock, int stream, uint64_t ticket) {
  if (clock.size() <= static_cast<size_t>(stream)) clock.resize(stream + 1);
  clock[stream] = std::max(clock[stream], ticket);
}

void merge(VectorClock& into, const VectorClock& from) {
  for (size_t stream = 0; stream < from.size(); ++stream) {
    raise(into, static_cast<int>(stream), from[stream]);
  }
}

uint64_t ticket_of(const VectorClock& clock, int stream) {
  return static_cast<size_t>(stream) < clock.size() ? clock[stream] : 0;
}

}  // namespace

Timeline& Timeline::instance() {
  static Timeline& result = *new Timeline;
  return result;
}

Timeline::Timeline() : delay_(settings().delay_ticks) {
  for (int device = 0; device < settings().devices; ++device) {
    auto stream = std::make_unique<CUstream_st>();
    stream->number = next_number_++;
    stream->device = device;
    default_streams_.push_back(std::move(stream));
  }
}

cudaStream_t Timeline::create_stream(int device, unsigned flags, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = next_number_++;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  const cudaStream_t handle = stream.get();
  streams_.emplace(handle, std::move(stream));
  return handle;
}

bool Timeline::destroy_stream(cudaStream_t stream) { return streams_.erase(stream) > 0; }

cudaStream_t Timeline::find(cudaStream_t handle) const {
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    return default_streams_.at(current_device()).get();
  }
  return streams_.count(handle) ? handle : nullptr;
}

cudaEvent_t Timeline::create_event(int device, unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->device = device;
  event->flags = flags;
  const cudaEvent_t handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Timeline::destroy_event(cudaEvent_t event) { return events_.erase(event) > 0; }

bool Timeline::lives(cudaEvent_t event) const { return events_.count(event) > 0; }

uint64_t Timeline::issue(CUstream_st& stream) {
  // The default stream and streams made without cudaStreamNonBlocking wait for each other.
  const auto wait_for = [&](const CUstream_st& other) {
    merge(stream.before, other.before);
    raise(stream.before, other.number, other.issued);
    stream.due = std::max(stream.due, other.due);
  };
  const CUstream_st& default_stream = *default_streams_[stream.device];
  if (&stream != &default_stream) {
    if (!(stream.flags & cudaStreamNonBlocking)) wait_for(default_stream);
  } else {
    for (const auto& [handle, other] : streams_) {
      if (other->device == stream.device && !(other->flags & cudaStreamNonBlocking)) {
        wait_for(*other);
      }
    }
  }
  ++now_;
  stream.due = std::max(stream.due, now_ + delay_);
  return ++stream.issued;
}

void Timeline::record(CUevent_st& event, const CUstream_st& stream) {
  event.recorded = true;
  event.capture = nullptr;
  event.stream = stream.number;
  event.ticket = stream.issued;
  event.due = stream.due;
  event.before = stream.before;
}

void Timeline::wait(CUstream_st& stream, const CUevent_st& event) {
  if (!event.recorded) return;
  merge(stream.before, event.before);
  raise(stream.before, event.stream, event.ticket);
  stream.due = std::max(stream.due, event.due);
}

void Timeline::observe(int stream, uint64_t ticket, const VectorClock& before, uint64_t due) {
  now_ = std::max(now_, due);
  merge(observed_, before);
  raise(observed_, stream, ticket);
}

bool Timeline::query(const CUstream_st& stream) {
  ++now_;
  if (stream.due > now_) return false;
  observe(stream.number, stream.issued, stream.before, stream.due);
  return true;
}

bool Timeline::query(const CUevent_st& event) {
  ++now_;
  if (!event.recorded) return true;
  if (event.due > now_) return false;
  observe(event.stream, event.ticket, event.before, event.due);
  return true;
}

void Timeline::synchronize(const CUstream_st& stream) {
  observe(stream.number, stream.issued, stream.before, stream.due);
}

void Timeline::synchronize(const CUevent_st& event) {
  if (event.recorded) observe(event.stream, event.ticket, event.before, event.due);
}

void Timeline::synchronize_device(int device) {
  synchronize(*default_streams_[device]);
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == device) synchronize(*stream);
  }
}

bool Timeline::host_knows_complete(int stream, uint64_t ticket) const {
  return ticket_of(observed_, stream) >= ticket;
}

bool Timeline::ordered_before(int stream, uint64_t ticket, const CUstream_st& next) const {
  return stream == next.number || ticket_of(next.before, stream) >= ticket ||
         host_knows_complete(stream, ticket);
}

void Timeline::end_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& [handle, stream] : streams_) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" void lowtide_double_set_delay(uint64_t ticks) {
  Lock lock;
  Timeline::instance().set_delay(ticks);
}

extern "C" void lowtide_double_advance(uint64_t ticks) {
  Lock lock;
  Timeline::instance().advance(ticks);
}
