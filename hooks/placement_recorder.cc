#include "hooks/placement_recorder.h"

#include <mutex>
#include <utility>

#include "hooks/device_pool.h"

namespace lowtide::hooks {
namespace {

uint64_t key_of(const void* address) noexcept { return reinterpret_cast<uint64_t>(address); }

}  // namespace

void PlacementRecorder::start() {
  const std::lock_guard lock(lock_);
  forget();
  recording_ = true;
}

Recording PlacementRecorder::take() {
  const std::lock_guard lock(lock_);
  recording_ = false;
  Recording taken = std::exchange(now_, {});
  forget();
  return taken;
}

void PlacementRecorder::forget() {
  now_ = {};
  live_ = {};
  marks_ = 0;
}

void PlacementRecorder::allocated(const void* address, size_t bytes, DeviceStream stream,
                                  int32_t op) noexcept {
  const std::lock_guard lock(lock_);
  if (!recording() || !now_.complete) return;
  try {
    const int32_t index = index_of(stream);
    auto& blocks = now_.streams[static_cast<size_t>(index)].blocks;
    blocks.push_back(
        {static_cast<int64_t>(DevicePool::rounded(bytes)), op, index, RecordedBlock::kAlive});
    if (!live_.insert(key_of(address), &blocks.back())) now_.complete = false;
  } catch (...) {
    now_.complete = false;
  }
}

void PlacementRecorder::freed(const void* address) noexcept {
  const std::lock_guard lock(lock_);
  if (!recording()) return;
  RecordedBlock* const block = live_.find(key_of(address));
  if (block == nullptr) return;
  block->died =
      static_cast<int64_t>(now_.streams[static_cast<size_t>(block->stream)].blocks.size());
  live_.erase(key_of(address));
}

void PlacementRecorder::mark() noexcept {
  const std::lock_guard lock(lock_);
  if (!recording()) return;
  ++marks_;
  try {
    for (RecordedStream& of : now_.streams) {
      of.marks.push_back(static_cast<int64_t>(of.blocks.size()));
    }
  } catch (...) {
    now_.complete = false;
  }
}

int64_t PlacementRecorder::marks() const noexcept {
  const std::lock_guard lock(lock_);
  return static_cast<int64_t>(marks_);
}

int32_t PlacementRecorder::index_of(DeviceStream stream) {
  for (size_t i = 0; i < now_.streams.size(); ++i) {
    if (now_.streams[i].stream == stream) return static_cast<int32_t>(i);
  }
  RecordedStream& added = now_.streams.emplace_back();
  added.stream = stream;
  added.marks.assign(marks_, 0);
  return static_cast<int32_t>(now_.streams.size()) - 1;
}

}  // namespace lowtide::hooks
