#include "runtime/step_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/hash.h"

namespace lowtide::runtime {

void StepLog::on_alloc(const hooks::MemoryEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  if (complete_) {
    return;
  }
  if (internal_ > 0) {
    internal_blocks_.insert(event.address);
    return;
  }
  const auto sid = static_cast<StorageId>(storages_.size());
  LoggedStorage storage;
  storage.bytes = event.requested_bytes;
  storage.rounded = event.rounded_bytes;
  storages_.push_back(std::move(storage));
  evicted_.push_back(0);
  at_[event.address] = sid;
  add_event(EventKind::alloc, sid);
}

void StepLog::on_free(const hooks::MemoryEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  if (complete_) {
    return;
  }
  const auto found = at_.find(event.address);
  if (found != at_.end()) {
    add_event(EventKind::free, found->second);
    at_.erase(found);
    return;
  }
  if (internal_blocks_.erase(event.address) > 0) {
    return;
  }
  const auto sid = static_cast<StorageId>(storages_.size());
  LoggedStorage storage;
  storage.bytes = event.requested_bytes;
  storage.rounded = event.rounded_bytes;
  storage.resident = true;
  storages_.push_back(std::move(storage));
  evicted_.push_back(0);
  add_event(EventKind::free, sid);
}

int32_t StepLog::begin_op(const OpInfo& info, Phase phase, uint64_t sizes) {
  const std::lock_guard lock(mutex_);
  if (open_ops_ > 0 && open_thread_ != std::this_thread::get_id()) {
    return -1;
  }
  open_thread_ = std::this_thread::get_id();
  ++open_ops_;
  const auto id = static_cast<int32_t>(ops_.size());
  ops_.emplace_back();
  ops_.back().info = &info;
  ops_.back().phase = phase;
  ops_.back().sizes = sizes;
  add_event(EventKind::op_begin, id);
  return id;
}

void StepLog::mark_wrapper(int32_t op) {
  const std::lock_guard lock(mutex_);
  ops_[static_cast<size_t>(op)].wrapper = true;
}

int32_t StepLog::begin_again(int32_t op) {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<int32_t>(ops_.size());
  ops_.push_back(ops_[static_cast<size_t>(op)]);
  ops_[static_cast<size_t>(op)].wrapper = true;
  add_event(EventKind::op_begin, id);
  return id;
}

void StepLog::abort_op() {
  const std::lock_guard lock(mutex_);
  --open_ops_;
}

void StepLog::end_op(int32_t op, int64_t ns, uint64_t key, uint64_t shape_key) {
  const std::lock_guard lock(mutex_);
  --open_ops_;
  LoggedOp& done = ops_[static_cast<size_t>(op)];
  done.ns = ns;
  done.key = key;
  done.shape_key = shape_key;
  done.done = true;
  if (!done.wrapper) {
    add_event(EventKind::op_end, op);
  }
}

void StepLog::add_device_time(int32_t op, c10::Event begin, c10::Event end) {
  const std::lock_guard lock(mutex_);
  device_times_.push_back({op, std::move(begin), std::move(end)});
}

StorageId StepLog::storage_at(const void* address, int64_t bytes, StorageKind kind_if_new) {
  const std::lock_guard lock(mutex_);
  const auto found = at_.find(address);
  if (found != at_.end()) {
    return found->second;
  }
  const auto sid = static_cast<StorageId>(storages_.size());
  LoggedStorage storage;
  storage.bytes = bytes;
  storage.rounded = bytes;
  storage.resident = true;
  storage.outside = bytes > 0 && !memory_.counts(address);
  storage.kind = kind_if_new;
  storages_.push_back(std::move(storage));
  evicted_.push_back(0);
  if (address != nullptr) {
    at_[address] = sid;
  }
  return sid;
}

StorageId StepLog::created(const void* address, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = at_.find(address);
  if (bytes > 0 && found != at_.end()) {
    return found->second;
  }
  const auto sid = static_cast<StorageId>(storages_.size());
  LoggedStorage storage;
  storage.bytes = bytes;
  storage.rounded = bytes;
  storages_.push_back(std::move(storage));
  evicted_.push_back(0);
  add_event(EventKind::alloc, sid);
  return sid;
}

bool StepLog::knows(const void* address) {
  const std::lock_guard lock(mutex_);
  return at_.contains(address);
}

SaveId StepLog::pack(StorageId sid, int32_t version) {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<SaveId>(saves_.size());
  TraceSave save;
  save.storage = sid;
  save.version = version;
  save.packed_by = ops_.empty() ? kNone : static_cast<OpId>(ops_.size() - 1);
  saves_.push_back(save);
  add_event(EventKind::pack, id);
  return id;
}

void StepLog::unpack(SaveId id) {
  const std::lock_guard lock(mutex_);
  TraceSave& save = saves_[static_cast<size_t>(id)];
  const auto position = static_cast<OpId>(ops_.size());
  if (save.unpack_order == kNone) {
    save.unpack_order = next_unpack_++;
    save.first_unpack = position;
  }
  save.last_unpack = position;
  save.evicted_in_probe = evicted_[static_cast<size_t>(save.storage)] != 0;
  add_event(EventKind::unpack, id);
}

void StepLog::drop_save(SaveId id) {
  const std::lock_guard lock(mutex_);
  if (!complete_) {
    add_event(EventKind::drop_save, id);
  }
}

void StepLog::release(StorageId sid) {
  const std::lock_guard lock(mutex_);
  if (!complete_) {
    add_event(EventKind::release, sid);
  }
}

void StepLog::mark_evicted(StorageId sid) {
  const std::lock_guard lock(mutex_);
  evicted_[static_cast<size_t>(sid)] = 1;
  ++evictions_;
}

void StepLog::unmap(const void* address) {
  const std::lock_guard lock(mutex_);
  at_.erase(address);
  internal_blocks_.insert(address);
}

void StepLog::remap(const void* address, StorageId sid) {
  const std::lock_guard lock(mutex_);
  if (address != nullptr && !complete_) {
    internal_blocks_.erase(address);
    at_[address] = sid;
  }
}

void StepLog::free_absent(StorageId sid) {
  const std::lock_guard lock(mutex_);
  if (!complete_) {
    add_event(EventKind::free, sid);
  }
}

void StepLog::finish(int64_t step_ns, int64_t resident_requested, int64_t resident_rounded) {
  const std::lock_guard lock(mutex_);
  step_ns_ = step_ns;
  resident_requested_ = resident_requested;
  resident_rounded_ = resident_rounded;
  for (const DeviceTime& time : device_times_) {
    constexpr double kNsPerMs = 1e6;
    const double ns = time.begin.elapsedTime(time.end) * kNsPerMs;
    ops_[static_cast<size_t>(time.op)].device_ns = std::max<int64_t>(0, std::llround(ns));
  }
  device_times_.clear();
  complete_ = true;
}

uint64_t StepLog::shape_hash() const {
  const std::lock_guard lock(mutex_);
  Hasher hasher;
  for (const LoggedOp& op : ops_) {
    if (!op.wrapper) {
      hasher.add(op.info->name_hash).add(op.key).add(op.shape_key).add(op.sizes);
    }
  }
  return hasher.value();
}

}  // namespace lowtide::runtime
