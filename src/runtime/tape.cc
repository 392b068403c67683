#include "runtime/tape.h"

#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace lowtide::runtime {

void OpRecord::clear() {
  info = nullptr;
  arguments.clear();
  tensors.clear();
  outputs.clear();
  rng.reset();
  grad_mode = false;
  replayable = true;
  keep_reason = "";
  ns = 0;
  key = 0;
  shape_key = 0;
  ordinal = -1;
  stream = 0;
}

OpRecord* Tape::open_record() {
  ++open_records_;
  if (pool_.empty()) {
    owned_.push_back(std::make_unique<OpRecord>());
    return owned_.back().get();
  }
  OpRecord* record = pool_.back();
  pool_.pop_back();
  return record;
}

int32_t Tape::commit(OpRecord* record) {
  --open_records_;
  records_.push_back(record);
  return records() - 1;
}

void Tape::discard(OpRecord* record) {
  --open_records_;
  record->clear();
  pool_.push_back(record);
}

int32_t Tape::add_slot() {
  if (slots_used_ == slots_.size()) {
    slots_.emplace_back();
  }
  return static_cast<int32_t>(slots_used_++);
}

int32_t Tape::add_external(const at::Tensor& tensor) {
  External external;
  external.storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(tensor));
  external.original = external.storage.get();
  if (!tensor.is_inference()) {
    external.counter = torch::autograd::impl::version_counter(tensor);
    external.counter_value = external.counter.current_version();
  }
  const auto index = static_cast<int32_t>(externals_.size());
  external_of_[external.original] = index;
  externals_.push_back(std::move(external));
  return index;
}

void Tape::forget_external(int32_t index) { external_of_.erase(external(index).original); }

int32_t Tape::find_slot(const c10::StorageImpl* storage) const {
  const auto found = slot_of_.find(storage);
  return found == slot_of_.end() ? -1 : found->second;
}

int32_t Tape::find_external(const c10::StorageImpl* storage) const {
  const auto found = external_of_.find(storage);
  return found == external_of_.end() ? -1 : found->second;
}

void Tape::bind(int32_t index, const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  Slot& target = slot(index);
  const c10::StorageImpl* before = target.identity._unsafe_get_target();
  if (before != nullptr && before != storage.get()) {
    slot_of_.erase(before);
  }
  target.identity = c10::weak_intrusive_ptr<c10::StorageImpl>(storage);
  slot_of_[storage.get()] = index;
}

void Tape::lose_external(int32_t index,
                         std::vector<c10::intrusive_ptr<c10::StorageImpl>>& released) {
  External& entry = external(index);
  if (entry.storage) {
    lost_inputs += entry.readers > 0 ? 1 : 0;
    released.push_back(std::move(entry.storage));
    entry.storage.reset();
  }
}

bool Tape::unfilled_at(const Slot& slot, int32_t version) {
  return version == 1 && !slot.writers.empty() && record(slot.writers[0]).info->empty_factory;
}

bool Tape::opaque_at(const Slot& slot, int32_t version) {
  return slot.opaque || version >= slot.lost_from || unfilled_at(slot, version);
}

c10::StreamId Tape::written_on(const Slot& slot) const {
  if (slot.rebuilt_on.has_value()) return *slot.rebuilt_on;
  return slot.writers.empty() ? 0 : records_[static_cast<size_t>(slot.writers.back())]->stream;
}

bool Tape::needed_by_holders(int32_t wanted) {
  if (live_holders == 0) {
    return false;
  }
  std::vector<char> seen(slots_used_, 0);
  std::vector<int32_t> stack;
  for (int32_t i = 0; i < slots(); ++i) {
    if (slot(i).holders > 0) {
      seen[static_cast<size_t>(i)] = 1;
      stack.push_back(i);
    }
  }
  while (!stack.empty()) {
    const int32_t current = stack.back();
    stack.pop_back();
    for (const int32_t writer : slot(current).writers) {
      for (const TensorRef& ref : record(writer).tensors) {
        if (ref.kind == RefKind::external && ref.index == wanted) {
          return true;
        }
        if (ref.kind == RefKind::slot && seen[static_cast<size_t>(ref.index)] == 0) {
          seen[static_cast<size_t>(ref.index)] = 1;
          stack.push_back(ref.index);
        }
      }
    }
  }
  return false;
}

void Tape::forget_log() {
  for (size_t i = 0; i < slots_used_; ++i) {
    slots_[i].sid = kNone;
  }
}

void Tape::clear(std::vector<c10::intrusive_ptr<c10::StorageImpl>>& released) {
  for (size_t i = 0; i < slots_used_; ++i) {
    Slot& used = slots_[i];
    if (used.held) {
      released.push_back(std::move(used.held));
    }
    used = Slot();
  }
  slots_used_ = 0;
  for (External& external : externals_) {
    if (external.storage) {
      released.push_back(std::move(external.storage));
    }
  }
  externals_.clear();
  for (OpRecord* record : records_) {
    record->clear();
    pool_.push_back(record);
  }
  records_.clear();
  slot_of_.clear();
  external_of_.clear();
  live_holders = 0;
  opaque_reads = 0;
  lost_inputs = 0;
  ++generation;
}

}  // namespace lowtide::runtime
