#include "runtime/rescue.h"

#include <ATen/ops/clone.h>

#include <algorithm>
#include <utility>

#include "runtime/internal_guards.h"

namespace lowtide::runtime {

void RescueList::add_overwritten(Runtime& runtime, c10::StorageImpl* storage,
                                 const OpRecord* record, const OpInfo& info) {
  for (const std::shared_ptr<Tape>& tape : runtime.tapes()) {
    const bool own = record != nullptr && tape == runtime.tape;
    const int32_t external = tape->find_external(storage);
    if (external >= 0) {
      // The op's own recipe needs the earlier bytes too, if it makes anything else than this write.
      const bool own_recipe = own && info.returns > 0 && !info.writes_only_side_state &&
                              info.handle.schema().returns()[0].alias_info() == nullptr;
      External& entry = tape->external(external);
      if (own_recipe || (entry.readers > 0 && tape->needed_by_holders(external))) {
        items_.push_back({tape, external, entry.storage});
      } else {
        tape->lose_external(external, dropped_);
      }
      tape->forget_external(external);
      continue;
    }
    const int32_t index = own ? -1 : tape->find_slot(storage);
    if (index >= 0) {
      // Nobody will be able to replay this write: from here on the live bytes are the only copy.
      Slot& slot = tape->slot(index);
      ++slot.version;
      slot.lost_from = std::min(slot.lost_from, slot.version);
      if (runtime.log != nullptr && slot.sid != kNone) {
        LoggedStorage& logged = runtime.log->storage(slot.sid);
        logged.replayable = false;
        logged.keep_reason = "written by no operator that Lowtide saw";
      }
      if (slot.holders > 0 && !slot.held) {
        slot.held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
      }
    }
  }
}

void RescueList::run(Runtime& runtime) {
  dropped_.clear();
  for (Item& item : items_) {
    c10::intrusive_ptr<c10::StorageImpl> copy;
    try {
      const InternalScope internal(runtime);
      copy = clone_storage(item.original);
    } catch (...) {
      // A front end may not be able to stop the write: nothing may read these bytes as the old
      // ones.
      const std::lock_guard lock(runtime.mutex);
      for (const Item& lost : items_) {
        if (!lost.tape->external(lost.external).rescued) {
          lost.tape->lose_external(lost.external, dropped_);
        }
      }
      throw;
    }
    const std::lock_guard lock(runtime.mutex);
    External& entry = item.tape->external(item.external);
    runtime.counters.rescues += 1;
    runtime.counters.rescued_bytes += static_cast<int64_t>(copy->nbytes());
    entry.storage = std::move(copy);
    entry.rescued = true;
    entry.rescued_on = runtime.streams.current();
  }
  items_.clear();
}

c10::intrusive_ptr<c10::StorageImpl> clone_storage(
    const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const BelowCapture below;
  const c10::DispatchKey key = storage->device_type() == c10::DeviceType::CPU
                                   ? c10::DispatchKey::CPU
                                   : c10::DispatchKey::CUDA;
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
  const auto size = static_cast<int64_t>(storage->nbytes());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({size});
  const at::Tensor copy = at::clone(bytes);
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(copy));
}

}  // namespace lowtide::runtime
