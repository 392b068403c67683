// Rebuilds a storage from its recipe, bit for bit.
//
// The needed ops are those between the storage and the nearest live ancestors; they run in
// completion order, boxed, below autograd and autocast, with the forward's grad mode and random
// state; the generators' current states are put back, also on exceptions. Temporaries are freed
// after their last use, live inputs are held until theirs. An older version of a storage that is
// live at a newer one is rebuilt beside it.
//
// Thread safety: takes the runtime's mutex for the tape, never while an op runs.
// Throws InternalError (named op and storage) when a recipe cannot be replayed or would give other
// bytes, and whatever the ops throw (out of memory).
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>

#include "runtime/runtime_state.h"

namespace lowtide::runtime {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// The slot's current content. Becomes the slot's live value; held on when others will want it.
[[nodiscard]] StoragePtr rebuild(Runtime& runtime, const std::shared_ptr<Tape>& tape, int32_t slot);

// Every saved tensor that is only a recipe becomes a tensor again and stays one: nobody will watch
// the recipes' inputs from now on.
void rebuild_all(Runtime& runtime);

// A second copy, computed from the recipe although the slot is live; the tape does not learn of it.
[[nodiscard]] StoragePtr rebuild_beside(Runtime& runtime, const std::shared_ptr<Tape>& tape,
                                        int32_t slot);

// May this slot lose its bytes? True when the recipe is complete; opaque storages that it reads are
// pinned for as long as the slot has holders. Caller holds the mutex.
[[nodiscard]] bool secure_recipe(Tape& tape, int32_t slot);
// Lets the pins go; storages to release are moved to `released`. Caller holds the mutex.
void unpin(Tape& tape, Slot& slot, std::vector<StoragePtr>& released);

// "aten::mul.Tensor (forward op #12)", for messages. Caller holds the mutex.
[[nodiscard]] std::string describe(Tape& tape, const Slot& slot);

}  // namespace lowtide::runtime
