// What autograd keeps instead of a saved tensor: a slot number and a geometry.
//
// Made by the engine (`get_default_saved_variable_hooks`) for every tensor saved inside a captured
// step. A holder of an unknown storage (parameter, batch, subclass) keeps the tensor itself. Unpack
// gives an alias of the live storage, or rebuilds it; it makes the version check that autograd
// skips when hooks are present, with autograd's own message. May outlive the session.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

#include "runtime/capture.h"
#include "runtime/runtime_state.h"

namespace torch::autograd {
struct Node;
}

namespace lowtide::runtime {

class SavedHolder : public torch::autograd::SavedVariableHooks {
 public:
  // `open_frame`: the op whose outputs may not be known yet, null = all are.
  SavedHolder(std::shared_ptr<Runtime> runtime, OpFrame* open_frame);
  ~SavedHolder() override;

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

  // Called at the end of `open_frame`'s op, with the mutex held: the storage is known by now.
  void settle();
  void forget_frame() { open_frame_ = nullptr; }

 private:
  void bind_slot(int32_t slot);
  void check_version() const;
  c10::intrusive_ptr<c10::StorageImpl> live_storage();
  void compare_with_recipe(const c10::intrusive_ptr<c10::StorageImpl>& live);

  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Tape> tape_;
  int32_t slot_ = -1;
  SaveId save_ = kNone;
  int64_t log_id_ = 0;  // of the log that `save_` belongs to; 0 = none
  OpFrame* open_frame_ = nullptr;
  Geometry geometry_;
  c10::VariableVersion counter_;
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  const torch::autograd::Node* node_ = nullptr;   // for the error text; outlives this holder
  c10::intrusive_ptr<c10::StorageImpl> storage_;  // of an unknown storage
  at::Tensor tensor_;                             // not plain: kept whole, detached
};

}  // namespace lowtide::runtime
