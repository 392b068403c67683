#include "runtime/saved_holder.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "runtime/engine.h"
#include "runtime/optional_allocations.h"
#include "runtime/replay.h"
#include "runtime/step_watcher.h"
#include "runtime/storage_bytes.h"

namespace lowtide::runtime {

SavedHolder::SavedHolder(std::shared_ptr<Runtime> runtime, OpFrame* open_frame)
    : runtime_(std::move(runtime)), open_frame_(open_frame) {}

SavedHolder::~SavedHolder() {
  if (open_frame_ != nullptr) {
    std::erase(open_frame_->pending, this);
  }
  if (slot_ < 0) {
    return;
  }
  std::vector<StoragePtr> released;
  {
    const std::lock_guard lock(runtime_->mutex);
    Slot& slot = tape_->slot(slot_);
    const bool logged = log_id_ != 0 && log_id_ == runtime_->log_id;
    if (logged) {
      runtime_->log->drop_save(save_);
    }
    --tape_->live_holders;
    if (--slot.holders == 0) {
      if (logged && !slot.alive() && slot.sid != kNone) {
        runtime_->log->free_absent(slot.sid);
      }
      if (slot.held && slot.pinned_by == 0) {
        released.push_back(std::move(slot.held));
        slot.held.reset();
      }
      unpin(*tape_, slot, released);
    }
    // The last of a graph that outlived its step: what its recipes read is not needed any more.
    if (!runtime_->in_step && tape_->idle()) {
      tape_->clear(released);
    }
  }
}

void SavedHolder::call_pack_hook(const at::Tensor& tensor) {
  if (!is_plain(tensor)) {
    tensor_ = tensor.detach();
    return;
  }
  geometry_.assign(tensor);
  counter_ = torch::autograd::impl::version_counter(tensor);
  version_ = counter_.current_version();
  if (const auto* meta = torch::autograd::impl::get_autograd_meta(tensor)) {
    node_ = meta->grad_fn_.get();
    output_nr_ = meta->output_nr_;
  }
  c10::StorageImpl* storage = storage_of(tensor);
  if (StepWatcher* const watcher = StepWatcher::current();
      watcher != nullptr && tensor.requires_grad() && node_ == nullptr) {
    watcher->leaf_saved(storage);
  }
  const std::lock_guard lock(runtime_->mutex);
  tape_ = runtime_->tape;
  const int32_t slot = tape_ == nullptr ? -1 : tape_->find_slot(storage);
  storage_ = StoragePtr::reclaim_copy(storage);
  if (open_frame_ != nullptr && !open_frame_->wrapper) {
    open_frame_->pending.push_back(this);
    return;
  }
  open_frame_ = nullptr;
  if (slot >= 0) {
    bind_slot(slot);
  }
}

void SavedHolder::settle() {
  open_frame_ = nullptr;
  const int32_t slot = tape_->find_slot(storage_.get());
  // Saved before the op wrote it: only the bytes themselves are sure.
  if (slot >= 0 && counter_.current_version() == version_) {
    bind_slot(slot);
  }
}

void SavedHolder::bind_slot(int32_t index) {
  Slot& slot = tape_->slot(index);
  slot_ = index;
  ++slot.holders;
  ++tape_->live_holders;
  slot.pack_sequence = ++runtime_->pack_clock;
  runtime_->counters.packs += 1;
  if (runtime_->log != nullptr && slot.sid != kNone) {
    log_id_ = runtime_->log_id;
    save_ = runtime_->log->pack(slot.sid, slot.version);
    if (slot.holders == 1) {
      runtime_->watched.emplace_back(tape_, index);
    }
  }
  // Nothing is dropped before its recipe has been verified once, whatever the plan says.
  const bool drop = slot.action == Action::drop && slot.trusted && slot.bytes > 0 &&
                    runtime_->budgeted(*storage_) &&
                    (slot.pins.empty() ? secure_recipe(*tape_, index) : true);
  if (drop) {
    runtime_->counters.drops += 1;
    if (slot.held && slot.pinned_by == 0 && runtime_->backward_depth == 0) {
      // Saved before its last writer ran too, in a state that no recipe was compared for.
      slot.held.reset();
    }
  } else if (!slot.held) {
    slot.held = storage_;
  }
  storage_.reset();
}

at::Tensor SavedHolder::call_unpack_hook() {
  if (tensor_.defined()) {
    return tensor_;
  }
  check_version();
  StoragePtr storage = slot_ < 0 ? storage_ : live_storage();
  at::Tensor tensor = geometry_.view_of(std::move(storage));
  if (counter_.enabled()) {
    tensor.unsafeGetTensorImpl()->set_version_counter(counter_);
  }
  return tensor;
}

c10::intrusive_ptr<c10::StorageImpl> SavedHolder::live_storage() {
  StoragePtr live;
  bool check = false;
  {
    const std::lock_guard lock(runtime_->mutex);
    Slot& slot = tape_->slot(slot_);
    if (log_id_ != 0 && log_id_ == runtime_->log_id) {
      runtime_->poll_releases();
      runtime_->log->unpack(save_);
      runtime_->watched.emplace_back(tape_, slot_);
    }
    live = slot.identity.lock();
    if (live && slot.rebuilt_on.has_value() && *slot.rebuilt_on != runtime_->streams.current()) {
      runtime_->streams.wait_for(*slot.rebuilt_on);
      runtime_->streams.read_on_current(*live);
    }
    const bool unproven = !slot.trusted && (runtime_->verify || slot.action == Action::drop);
    check = live && (unproven || slot.canary) && !slot.checked && !slot.unspecified;
    slot.checked |= check;
  }
  if (!live) {
    return rebuild(*runtime_, tape_, slot_);
  }
  if (check) {
    compare_with_recipe(live);
  }
  return live;
}

void SavedHolder::compare_with_recipe(const StoragePtr& live) {
  {
    const std::lock_guard lock(runtime_->mutex);
    Slot& slot = tape_->slot(slot_);
    if (slot.ordinal < 0 || slot.bytes == 0 || !secure_recipe(*tape_, slot_)) {
      return;
    }
  }
  bool same = false;
  std::string failure;
  {
    const InternalScope internal(*runtime_);
    const OptionalAllocations optional;
    try {
      const StoragePtr rebuilt = rebuild_beside(*runtime_, tape_, slot_);
      same = runtime_->memory.has_values() ? same_bytes(*live, *rebuilt)
                                           : live->nbytes() == rebuilt->nbytes();
    } catch (const c10::OutOfMemoryError&) {
      return;  // no room for a second copy now: a later verify step has it
    } catch (const Error& error) {
      failure = error.message();
    }
  }
  const std::lock_guard lock(runtime_->mutex);
  Slot& slot = tape_->slot(slot_);
  runtime_->counters.verified += 1;
  runtime_->counters.canaries += slot.canary ? 1 : 0;
  if (same) {
    runtime_->trusted.insert(slot.recipe);
    slot.trusted = true;
    return;
  }
  runtime_->counters.mismatched += 1;
  runtime_->trusted.erase(slot.recipe);
  runtime_->never_drop.insert(slot.creator);
  slot.opaque = true;
  if (!slot.held) {
    slot.held = live;
  }
  runtime_->mismatches.push_back(
      {slot.ordinal, slot.output, slot.canary,
       "output of " + describe(*tape_, slot) +
           (failure.empty() ? ": recomputed bytes differ" : ": " + failure)});
}

// Autograd's own check makes the error: programs and people search for its text.
void SavedHolder::check_version() const {
  if (!counter_.enabled()) {
    return;
  }
  const uint32_t current = counter_.current_version();
  if (current == version_) [[likely]] {
    return;
  }
  const NoHolders plain;
  at::Tensor stand_in = geometry_.without_bytes();
  if (node_ != nullptr) {
    auto* node = const_cast<torch::autograd::Node*>(node_);  // NOLINT: counted, not changed
    torch::autograd::impl::set_gradient_edge(stand_in, {node->getptr(), output_nr_});
  }
  stand_in.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(version_));
  const torch::autograd::SavedVariable saved(stand_in, /*is_output=*/false);
  stand_in.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(current));
  (void)saved.unpack();
  throw InternalError("a saved tensor was changed in place after it was saved");
}

}  // namespace lowtide::runtime
