// What one training step executed: the recipes of its storages.
//
// A tape is the arena of a step. It numbers storages (slots), external storages (made before or
// outside the tape) and executed ops (records) in completion order; recipes refer to each other by
// these numbers, so nothing here forms an ownership cycle and a step's tape is emptied at once.
// A slot is a live tensor's storage or a recipe, and may turn from one to the other at any moment.
//
// Ownership: `Slot::held` is the only strong reference a saved tensor keeps; `identity` is weak and
// keeps the StorageImpl's address from being reused. `External::storage` pins what recipes read.
// Thread safety: none; every access is made under the session's mutex (`Runtime::mutex`). Nothing
// here runs an op. Records are pooled: a cleared tape keeps its memory for the next step.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "core/plan.h"
#include "runtime/geometry.h"
#include "runtime/op_info.h"
#include "runtime/rng_state.h"

namespace lowtide::runtime {

enum class RefKind : uint8_t { slot, external, shape_only };

// A tensor argument of an executed op.
struct TensorRef {
  RefKind kind = RefKind::slot;
  bool written = false;
  int16_t argument = 0;
  int16_t element = -1;  // in a list argument; -1 = the argument itself
  int32_t index = -1;    // slot or external
  int32_t version = 0;   // of the slot when the op began
  Geometry geometry;
};

struct OutputRef {
  int16_t result = 0;
  int16_t element = -1;
  int32_t slot = -1;
};

struct OpRecord {
  const OpInfo* info = nullptr;
  std::vector<c10::IValue> arguments;  // tensors taken out (None in their place)
  c10::SmallVector<TensorRef, 3> tensors;
  c10::SmallVector<OutputRef, 2> outputs;
  std::unique_ptr<RngState> rng;
  bool grad_mode = false;
  caffe2::TypeMeta default_dtype;
  bool replayable = true;
  const char* keep_reason = "";
  int64_t ns = 0;  // measured, 0 = not (yet)
  uint64_t key = 0;
  uint64_t shape_key = 0;
  int32_t ordinal = -1;      // position among the step's forward ops; -1 = not one
  c10::StreamId stream = 0;  // it ran on

  void clear();
};

struct Slot {
  c10::weak_intrusive_ptr<c10::StorageImpl> identity{c10::intrusive_ptr<c10::StorageImpl>()};
  c10::intrusive_ptr<c10::StorageImpl> held;
  int64_t bytes = 0;
  uint64_t key = 0;                      // of the last writer and output position
  uint64_t creator = 0;                  // creator_id, 0 = not made by a forward op
  uint64_t recipe = 0;                   // extended by each writer
  c10::SmallVector<int32_t, 3> writers;  // records: creator, then in-place writers
  int32_t version = 0;                   // writes so far, recorded or not
  int32_t ordinal = -1;                  // of the creator, with `output`: identity between steps
  int32_t output = 0;
  int32_t holders = 0;        // saved tensors of autograd that need it
  int64_t pack_sequence = 0;  // of the latest pack
  int32_t sid = kNone;        // storage in the probe's log
  Action action = Action::save;
  bool keep_after_recompute = true;
  bool opaque = false;            // content not described by its writers: never dropped
  int32_t lost_from = INT32_MAX;  // first version that no recorded op describes
  bool trusted = false;           // this recipe was verified: may be dropped, needs no digest
  bool unspecified = false;       // some of its bytes mean nothing: cannot be compared
  std::optional<c10::StreamId> rebuilt_on;  // the stream its present bytes were recomputed on
  bool canary = false;
  bool checked = false;  // compared with its recipe in this step
  bool has_digest = false;
  Digest128 digest;           // of the bytes when it was evicted
  std::vector<int32_t> pins;  // opaque slots kept alive for this recipe
  int32_t pinned_by = 0;

  [[nodiscard]] bool alive() const { return !identity.expired(); }
  [[nodiscard]] bool sole_owner() const { return held && held.use_count() == 1; }
};

struct External {
  c10::intrusive_ptr<c10::StorageImpl> storage;  // the original, or its rescued clone; null = lost
  c10::VariableVersion counter;
  uint32_t counter_value = 0;
  const c10::StorageImpl* original = nullptr;
  int32_t readers = 0;  // committed records that refer to it
  bool rescued = false;
  c10::StreamId rescued_on = 0;  // the stream that the clone was made on
};

class Tape {
 public:
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A blank record from the pool; give it back by commit() or discard().
  [[nodiscard]] OpRecord* open_record();
  int32_t commit(OpRecord* record);  // its number
  void discard(OpRecord* record);

  int32_t add_slot();
  int32_t add_external(const at::Tensor& tensor);
  void forget_external(int32_t external);  // overwritten: later reads make a new one
  // Overwritten while no holder needs it: what reads it cannot be rebuilt any more.
  void lose_external(int32_t external, std::vector<c10::intrusive_ptr<c10::StorageImpl>>& released);

  [[nodiscard]] Slot& slot(int32_t i) { return slots_[static_cast<size_t>(i)]; }
  [[nodiscard]] External& external(int32_t i) { return externals_[static_cast<size_t>(i)]; }
  [[nodiscard]] OpRecord& record(int32_t i) { return *records_[static_cast<size_t>(i)]; }
  [[nodiscard]] int32_t slots() const { return static_cast<int32_t>(slots_used_); }
  [[nodiscard]] int32_t records() const { return static_cast<int32_t>(records_.size()); }

  // Which slot or external a storage is; -1 = unknown.
  [[nodiscard]] int32_t find_slot(const c10::StorageImpl* storage) const;
  [[nodiscard]] int32_t find_external(const c10::StorageImpl* storage) const;
  // `storage` is from now on the live value of the slot.
  void bind(int32_t slot, const c10::intrusive_ptr<c10::StorageImpl>& storage);

  // The stream that the slot's present bytes were written on.
  [[nodiscard]] c10::StreamId written_on(const Slot& slot) const;

  // True if a live saved tensor could need `external` for its recomputation.
  [[nodiscard]] bool needed_by_holders(int32_t external);

  // Its slots' numbers in the probe's log mean nothing any more.
  void forget_log();
  // Neither a saved tensor nor an op in flight refers to it: it may be cleared.
  [[nodiscard]] bool idle() const { return live_holders == 0 && open_records_ == 0; }
  // Forgets everything. Released storages go to `released`, for the caller to drop unlocked.
  void clear(std::vector<c10::intrusive_ptr<c10::StorageImpl>>& released);

  // Is the slot's content at `version` more than its recorded writers say? (unreplayable op, write
  // that was not recorded, failed verification, or an `empty` buffer that no recorded op has
  // filled)
  [[nodiscard]] bool opaque_at(const Slot& slot, int32_t version);
  // ... of an `empty` buffer as it was allocated: a recipe that overwrites it needs no more.
  [[nodiscard]] bool unfilled_at(const Slot& slot, int32_t version);

  int64_t live_holders = 0;
  int32_t opaque_reads = 0;  // recipes that read an opaque slot: drops must pin it
  int32_t lost_inputs = 0;   // externals with readers that were overwritten and not rescued
  uint64_t generation = 0;   // changes at every clear

 private:
  std::deque<Slot> slots_;  // addresses stay valid while it grows
  size_t slots_used_ = 0;
  int32_t open_records_ = 0;
  std::vector<External> externals_;
  std::vector<OpRecord*> records_;
  std::vector<std::unique_ptr<OpRecord>> owned_;
  std::vector<OpRecord*> pool_;
  std::unordered_map<const c10::StorageImpl*, int32_t> slot_of_;
  std::unordered_map<const c10::StorageImpl*, int32_t> external_of_;
};

}  // namespace lowtide::runtime
