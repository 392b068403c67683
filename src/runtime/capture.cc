#include "runtime/capture.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "runtime/op_flops.h"
#include "runtime/rescue.h"
#include "runtime/saved_holder.h"

namespace lowtide::runtime {
namespace {

bool may_hold_tensors(const c10::IValue& value) {
  return value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList();
}

// Calls f(tensor, argument, element) for every defined tensor among the arguments or results.
template <typename F>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, const F& f) {
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        f(value.toTensor(), static_cast<int16_t>(i), int16_t{-1});
      }
    } else if (may_hold_tensors(value)) {
      const auto elements = value.toListRef();
      for (size_t k = 0; k < elements.size(); ++k) {
        if (elements[k].isTensor() && elements[k].toTensor().defined()) {
          f(elements[k].toTensor(), static_cast<int16_t>(i), static_cast<int16_t>(k));
        }
      }
    }
  }
}

// Scalars that say how the op computes go into the structure; sizes and indices go into the shape.
void hash_scalar(const c10::IValue& value, Hasher& structure, Hasher& shape) {
  if (value.isBool()) {
    structure.add(value.toBool() ? 1 : 2);
  } else if (value.isNone()) {
    structure.add(3);
  } else if (value.isString()) {
    structure.add(std::string_view(value.toStringRef()));
  } else if (value.isInt()) {
    shape.add(value.toInt());
  } else if (value.isIntList()) {
    for (const int64_t element : value.toIntVector()) {
      shape.add(element);
    }
  }
}

// A copy of a list argument with the tensors taken out, so that a recipe pins no bytes.
c10::IValue without_tensors(const c10::IValue& value) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    list.resize(value.toTensorVector().size());
    return {std::move(list)};
  }
  const auto original = value.toList();
  c10::impl::GenericList list(original.elementType());
  for (size_t k = 0; k < original.size(); ++k) {
    const c10::IValue element = original.get(k);
    list.push_back(element.isTensor() ? c10::IValue() : element);
  }
  return {std::move(list)};
}

bool has_tensors(const c10::IValue& value) {
  if (value.isTensorList()) {
    return true;
  }
  if (!may_hold_tensors(value)) {
    return false;
  }
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor()) {
      return true;
    }
  }
  return false;
}

// Generator an op with the random tag draws from.
at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isGenerator()) {
      return value.toGenerator();
    }
  }
  c10::Device device(c10::kCPU);
  for_each_tensor(arguments, [&](const at::Tensor& t, int16_t, int16_t) { device = t.device(); });
  for (const c10::IValue& value : arguments) {
    if (value.isDevice()) {
      device = value.toDevice();
    }
  }
  return at::globalContext().defaultGenerator(device);
}

StorageKind kind_of(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() ? StorageKind::parameter : StorageKind::other;
}

StorageId sid_of(Runtime& runtime, const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  return runtime.log->storage_at(storage->data(), runtime.budgeted_bytes(*storage),
                                 kind_of(tensor));
}

// Adds one tensor argument to the record. Caller holds the mutex.
void add_reference(OpFrame& frame, const at::Tensor& tensor, int16_t argument, int16_t element) {
  OpRecord& record = *frame.record;
  Tape& tape = *frame.tape;
  record.tensors.emplace_back();
  TensorRef& ref = record.tensors.back();
  ref.argument = argument;
  ref.element = element;
  ref.written = frame.writes_argument(static_cast<size_t>(argument));
  if (!is_plain(tensor)) {
    record.replayable = false;
    record.keep_reason = "an argument is not a plain strided tensor";
    ref.kind = RefKind::shape_only;
    return;
  }
  ref.geometry.assign(tensor);
  if (frame.info->metadata_only) {
    ref.kind = RefKind::shape_only;
    return;
  }
  const c10::StorageImpl* storage = storage_of(tensor);
  ref.index = tape.find_slot(storage);
  if (ref.index >= 0) {
    ref.kind = RefKind::slot;
    ref.version = tape.slot(ref.index).version;
    if (!ref.written && tape.opaque_at(tape.slot(ref.index), ref.version)) {
      ++tape.opaque_reads;
    }
    return;
  }
  ref.kind = RefKind::external;
  ref.index = tape.find_external(storage);
  if (ref.index < 0) {
    ref.index = tape.add_external(tensor);
  } else if (!tensor.is_inference()) {
    External& external = tape.external(ref.index);
    if (external.counter.unique()) {
      // Read through an alias that is gone, and its counter with it: the present one goes on.
      external.counter = torch::autograd::impl::version_counter(tensor);
      external.counter_value = external.counter.current_version();
    } else if (external.counter.current_version() != external.counter_value) {
      // Changed without an op we saw: earlier readers fail loudly at replay, later ones are fine.
      tape.forget_external(ref.index);
      ref.index = tape.add_external(tensor);
    }
  }
}

// Does the op leave nothing of a buffer that `empty` allocated? `bytes`: of the buffer by now.
bool fills_whole(const OpRecord& record, int32_t slot, int64_t bytes, int64_t bytes_before) {
  for (const TensorRef& ref : record.tensors) {
    if (ref.written && ref.kind == RefKind::slot && ref.index == slot &&
        ((record.info->overwrites >> ref.argument) & 1U) != 0) {
      int64_t covered = static_cast<int64_t>(ref.geometry.dtype.itemsize());
      for (const int64_t size : ref.geometry.sizes) {
        covered *= size;
      }
      if (bytes_before == 0 || (covered == bytes && ref.geometry.dense())) {
        return true;
      }
    }
  }
  return false;
}

uint64_t hash_of_sizes(c10::ArrayRef<c10::IValue> arguments) {
  Hasher hasher;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, int16_t, int16_t) {
    hasher.add(static_cast<int>(tensor.scalar_type()));
    if (is_plain(tensor)) {
      for (const int64_t size : tensor.sizes()) {
        hasher.add(size);
      }
    }
  });
  return hasher.value();
}

void add_logged_inputs(OpFrame& frame, c10::ArrayRef<c10::IValue> arguments) {
  LoggedOp& logged = frame.runtime->log->op(frame.log_op);
  for_each_tensor(arguments, [&](const at::Tensor& tensor, int16_t argument, int16_t) {
    if (!is_plain(tensor)) {
      return;
    }
    const bool written = frame.writes_argument(static_cast<size_t>(argument));
    const int32_t slot = frame.tape->find_slot(storage_of(tensor));
    const StorageId sid = slot >= 0 && frame.tape->slot(slot).sid != kNone
                              ? frame.tape->slot(slot).sid
                              : sid_of(*frame.runtime, tensor);
    // Writes that no op recorded are no versions of a trace; the storage is marked as kept.
    const auto recorded = static_cast<int32_t>(frame.runtime->log->storage(sid).writers.size());
    const StorageRef ref{sid, slot >= 0 ? std::min(frame.tape->slot(slot).version, recorded) : 0};
    if (written &&
        std::find(logged.writes.begin(), logged.writes.end(), sid) == logged.writes.end()) {
      logged.writes.push_back(sid);
    }
    if (!frame.info->metadata_only &&
        std::find(logged.inputs.begin(), logged.inputs.end(), ref) == logged.inputs.end()) {
      logged.inputs.push_back(ref);
    }
  });
}

// Does the op work on the device of the budget? In backward each device has its own thread.
bool on_device(const Runtime& runtime, c10::ArrayRef<c10::IValue> arguments) {
  if (!runtime.streams.asynchronous()) {
    return true;
  }
  bool any = false;
  bool found = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, int16_t, int16_t) {
    any = true;
    found = found || tensor.device() == runtime.streams.device();
  });
  for (const c10::IValue& value : arguments) {
    found = found || (value.isDevice() && value.toDevice() == runtime.streams.device());
  }
  return found || !any;
}

void record_arguments(OpFrame& frame, c10::ArrayRef<c10::IValue> arguments) {
  OpRecord& record = *frame.record;
  Hasher structure;
  Hasher shape;
  structure.add(frame.info->name_hash);
  record.arguments.reserve(arguments.size());
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      record.arguments.emplace_back();
    } else if (has_tensors(value)) {
      record.arguments.push_back(without_tensors(value));
    } else {
      record.arguments.push_back(value);
      hash_scalar(value, structure, shape);
    }
  }
  for_each_tensor(arguments, [&](const at::Tensor& tensor, int16_t argument, int16_t element) {
    add_reference(frame, tensor, argument, element);
    const TensorRef& ref = record.tensors.back();
    structure.add(static_cast<int>(argument)).add(static_cast<int>(tensor.scalar_type()));
    structure.add(ref.kind == RefKind::slot ? frame.tape->slot(ref.index).key : uint64_t{7});
    for (const int64_t size : ref.geometry.sizes) {
      shape.add(size);
    }
  });
  record.key = structure.value();
  record.shape_key = shape.value();
}

// Compares a forward op with the plan. Caller holds the mutex.
void follow_plan(OpFrame& frame) {
  Runtime& runtime = *frame.runtime;
  OpRecord& record = *frame.record;
  record.ordinal = runtime.forward_ops++;
  runtime.step_keys.push_back(record.key);
  PlanRun& run = runtime.plan;
  if (!run.active()) {
    return;
  }
  const auto ordinal = static_cast<size_t>(record.ordinal);
  if (ordinal < run.index->size() && run.index->op(ordinal).key == record.key) {
    run.sizes_differ |= run.index->op(ordinal).shape_key != record.shape_key;
    if (record.ordinal == kSizingOps && run.sizes_differ && runtime.rescale &&
        run.planned_bytes > 0) {
      const double ratio =
          static_cast<double>(run.seen_bytes) / static_cast<double>(run.planned_bytes);
      if (auto scaled = runtime.rescale(ratio)) {
        run.index = std::move(scaled);
      }
    }
    return;
  }
  if (!run.strict && runtime.find_variant) {
    if (auto other = runtime.find_variant()) {
      run.index = std::move(other);
      return;
    }
  }
  run.diverged = true;
  run.diverged_at = record.ordinal;
  if (run.strict) {
    const std::string planned = ordinal < run.index->size()
                                    ? "the plan has " + run.index->op_name(ordinal)
                                    : "the plan ends after " + std::to_string(ordinal) + " ops";
    run.strict_error = "the plan belongs to another program: at forward op #" +
                       std::to_string(ordinal) + " " + planned + ", this program runs " +
                       frame.info->name +
                       " (or feeds it differently). Fix: drop --plan to measure this program, or "
                       "give the plan made from it";
    if (runtime.on_mismatch) {
      runtime.on_mismatch(run.strict_error);
    }
    throw Mismatch(run.strict_error);
  }
}

}  // namespace

void CaptureCore::begin(OpFrame& frame, Runtime& runtime, const OpInfo& info,
                        c10::ArrayRef<c10::IValue> arguments) {
  frame.runtime = &runtime;
  frame.info = &info;
  frame.writes = info.writes_of(arguments);
  frame.phase = runtime.phase();
  // Backward without create_graph and the optimizer save nothing: only their writes matter.
  const bool record =
      !frame.only_watch && (frame.phase == Phase::forward || frame.phase == Phase::other ||
                            (frame.phase == Phase::backward && c10::GradMode::is_enabled()));
  const bool logged = runtime.log != nullptr && !frame.foreign &&
                      (frame.phase != Phase::backward || on_device(runtime, arguments));
  const bool capturing = runtime.capturing();
  if (record || frame.writes != 0 || logged) {
    RescueList rescues;
    {
      const std::lock_guard lock(runtime.mutex);
      frame.tape = runtime.tape;
      if (logged) {
        runtime.poll_releases();
        frame.log_op = runtime.log->begin_op(info, frame.phase, hash_of_sizes(arguments));
        if (frame.log_op >= 0) {
          runtime.log->op(frame.log_op).flops = flops_of(info, arguments);
          add_logged_inputs(frame, arguments);
        }
      }
      if (record) {
        frame.record = frame.tape->open_record();
        frame.record->info = &info;
        frame.record->grad_mode = c10::GradMode::is_enabled();
        frame.record->default_dtype = c10::get_default_dtype();
        frame.record->replayable = info.replayable;
        frame.record->keep_reason = info.keep_reason;
        frame.record->stream = runtime.streams.current();
        if (capturing) {
          frame.record->replayable = false;
          frame.record->keep_reason = "ran while a CUDA graph was captured";
        }
        record_arguments(frame, arguments);
      }
      if (frame.writes != 0) {
        for_each_tensor(arguments, [&](const at::Tensor& tensor, int16_t argument, int16_t) {
          if (frame.writes_argument(static_cast<size_t>(argument)) && tensor.has_storage()) {
            rescues.add_overwritten(runtime, storage_of(tensor), frame.record, info);
          }
        });
      }
    }
    rescues.run(runtime);
    if (record && info.random && !capturing) {
      frame.record->rng = RngState::capture(generator_of(arguments));
      if (frame.record->rng == nullptr) {
        frame.record->replayable = false;
        frame.record->keep_reason = "its random generator cannot be saved";
      }
    }
    if (record && !info.random && !capturing && runtime.device_generator.defined()) {
      frame.device_offset = RngState::offset_of(runtime.device_generator);
    }
    if (frame.log_op >= 0 && runtime.streams.asynchronous() && !capturing) {
      frame.device_start = runtime.streams.timestamp();
    }
  }
  // An op's first run gives its price for eviction; probe steps measure every op.
  frame.timed =
      logged || (record && runtime.forward_ops >= static_cast<int32_t>(runtime.op_ns.size()));
  hooks::set_current_op(frame.log_op);
  if (frame.timed) {
    frame.start_ns = profiler::now_ns(runtime.clock);
  }
}

namespace {

// An external argument that the op wrote: the tape forgot it when the op began.
bool is_overwritten_argument(OpFrame& frame, const c10::StorageImpl* storage) {
  for (const TensorRef& ref : frame.record->tensors) {
    if (ref.kind == RefKind::external && ref.written &&
        frame.tape->external(ref.index).original == storage) {
      return true;
    }
  }
  return false;
}

// Did the ops inside do all that the op was asked for? In-place ops that keep a clone of what they
// overwrite contain an op too, but write themselves.
bool only_wraps(OpFrame& frame, c10::ArrayRef<c10::IValue> results) {
  Tape& tape = *frame.tape;
  for (const TensorRef& ref : frame.record->tensors) {
    if (ref.written && ref.kind == RefKind::slot && tape.slot(ref.index).version == ref.version) {
      return false;
    }
  }
  bool all_known = true;
  for_each_tensor(results, [&](const at::Tensor& tensor, int16_t, int16_t) {
    if (is_plain(tensor)) {
      const c10::StorageImpl* storage = storage_of(tensor);
      all_known = all_known && (tape.find_slot(storage) >= 0 || tape.find_external(storage) >= 0 ||
                                is_overwritten_argument(frame, storage));
    }
  });
  return all_known;
}

// Whether it drew numbers on the device that it did not declare.
void note_undeclared_draws(OpFrame& frame) {
  Runtime& runtime = *frame.runtime;
  if (frame.record == nullptr || frame.info->random || !runtime.device_generator.defined() ||
      runtime.capturing() || RngState::offset_of(runtime.device_generator) == frame.device_offset) {
    return;
  }
  frame.record->rng = RngState::at_offset(runtime.device_generator, frame.device_offset);
}

// Tensors that autograd saved while the op was open: their storages are known now.
void settle_pending(OpFrame& frame) {
  for (SavedHolder* holder : frame.pending) {
    holder->settle();
  }
  frame.pending.clear();
}

}  // namespace

void CaptureCore::end(OpFrame& frame, c10::ArrayRef<c10::IValue> results) {
  Runtime& runtime = *frame.runtime;
  int64_t ns = frame.timed ? profiler::now_ns(runtime.clock) - frame.start_ns : 0;
  if (frame.parent != nullptr) {
    frame.parent->inner_ns += ns;
  }
  ns -= frame.timed ? frame.inner_ns : 0;
  hooks::set_current_op(-1);
  if (frame.tape == nullptr) {
    return;
  }
  note_undeclared_draws(frame);
  std::optional<c10::Event> device_end;
  if (frame.device_start.has_value()) {
    device_end = runtime.streams.timestamp();
  }
  const std::lock_guard lock(runtime.mutex);
  record_results(frame, results, ns);
  settle_pending(frame);
  if (device_end.has_value() && frame.log_op >= 0) {
    runtime.log->add_device_time(frame.log_op, std::move(*frame.device_start),
                                 std::move(*device_end));
  }
}

void CaptureCore::record_results(OpFrame& frame, c10::ArrayRef<c10::IValue> results, int64_t ns) {
  Runtime& runtime = *frame.runtime;
  Tape& tape = *frame.tape;
  OpRecord* record = frame.record;
  if (frame.wrapper && record != nullptr && !only_wraps(frame, results)) {
    frame.wrapper = false;
    frame.log_op = frame.log_op < 0 ? -1 : runtime.log->begin_again(frame.log_op);
  }
  if (frame.log_op >= 0) {
    if (frame.wrapper) {
      runtime.log->mark_wrapper(frame.log_op);
    }
    runtime.log->end_op(frame.log_op, ns, record != nullptr ? record->key : frame.info->name_hash,
                        record != nullptr ? record->shape_key : 0);
  }
  if (record == nullptr || frame.wrapper) {
    if (record != nullptr) {
      tape.discard(record);
      frame.record = nullptr;
    }
    return;
  }
  record->ns = ns;
  if (frame.phase == Phase::forward) {
    follow_plan(frame);
  }

  // New storages among the results.
  int32_t output = 0;
  c10::SmallVector<int32_t, 4> created;
  for_each_tensor(results, [&](const at::Tensor& tensor, int16_t result, int16_t element) {
    if (!is_plain(tensor)) {
      return;
    }
    c10::StorageImpl* storage = storage_of(tensor);
    if (tape.find_slot(storage) >= 0 || tape.find_external(storage) >= 0 ||
        is_overwritten_argument(frame, storage)) {
      return;  // a view or the argument itself
    }
    const int32_t index = tape.add_slot();
    Slot& slot = tape.slot(index);
    tape.bind(index, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    slot.bytes = static_cast<int64_t>(storage->nbytes());
    slot.ordinal = record->ordinal;
    slot.output = output++;
    slot.version = 1;
    slot.key =
        Hasher(record->key).add(slot.output).add(static_cast<int>(tensor.scalar_type())).value();
    slot.opaque = !record->replayable;
    slot.unspecified = result < 64 && ((frame.info->unspecified_results >> result) & 1U) != 0;
    record->outputs.push_back({result, element, index});
    created.push_back(index);
    if (slot.ordinal >= 0) {
      slot.creator = creator_id(slot.ordinal, slot.output, record->key);
      slot.recipe = slot.creator;
      if (slot.unspecified) {
        runtime.trusted.insert(slot.recipe);  // its op's other results stand for it
      }
      slot.trusted = runtime.trusted.contains(slot.recipe);
      slot.opaque |= !runtime.never_drop.empty() && runtime.never_drop.contains(slot.creator);
      slot.canary = runtime.canary == slot.creator;
      if (runtime.plan.active()) {
        const PlannedStorage* planned = runtime.plan.index->decision(slot.ordinal, slot.output);
        if (planned != nullptr) {
          slot.action = slot.canary ? Action::save : planned->action;
          slot.keep_after_recompute = planned->keep_after_recompute;
        }
        if (slot.ordinal < kSizingOps) {
          runtime.plan.seen_bytes += slot.bytes;
        }
      }
    }
    if (frame.log_op >= 0) {
      slot.sid = runtime.log->created(storage->data(), runtime.budgeted_bytes(*storage));
      runtime.watch_foreign(frame.tape, index);
      LoggedStorage& logged = runtime.log->storage(slot.sid);
      logged.captured = true;
      logged.writers = {frame.log_op};
      logged.replayable = !slot.opaque && !frame.info->empty_factory;
      logged.keep_reason = record->replayable ? "" : record->keep_reason;
      if (frame.info->empty_factory) {
        logged.keep_reason = "written by no operator that Lowtide saw";
      }
      runtime.log->op(frame.log_op).outputs.push_back(slot.sid);
    }
  });
  if (runtime.plan.active() && record->ordinal >= 0 && record->ordinal < kSizingOps) {
    runtime.plan.planned_bytes +=
        runtime.plan.index->op(static_cast<size_t>(record->ordinal)).output_bytes;
  }

  // Storages of this tape that it wrote: one more link in their chains.
  c10::SmallVector<int32_t, 2> written;
  bool writes_external = false;
  for (const TensorRef& ref : record->tensors) {
    if (!ref.written) {
      continue;
    }
    if (ref.kind == RefKind::slot) {
      if (std::find(written.begin(), written.end(), ref.index) == written.end()) {
        written.push_back(ref.index);
      }
    } else if (!frame.info->writes_only_side_state) {
      writes_external = true;
    }
  }
  if (created.empty() && written.empty()) {
    tape.discard(record);
    frame.record = nullptr;
    return;
  }
  if (!written.empty() && writes_external) {
    record->replayable = false;
    record->keep_reason = "writes storages of the step and others at once";
  }
  if (record->ordinal >= 0) {
    record->ns = runtime.price_of(record->ordinal, ns);
  }
  for (const TensorRef& ref : record->tensors) {
    if (ref.kind == RefKind::external) {
      ++tape.external(ref.index).readers;
    }
  }
  const int32_t number = tape.commit(record);
  frame.record = nullptr;
  for (const int32_t index : created) {
    Slot& slot = tape.slot(index);
    slot.writers.push_back(number);
  }
  for (const int32_t index : written) {
    Slot& slot = tape.slot(index);
    const bool unfilled = tape.unfilled_at(slot, slot.version);
    const int64_t bytes_before = slot.bytes;
    slot.bytes = static_cast<int64_t>(slot.identity._unsafe_get_target()->nbytes());
    slot.writers.push_back(number);
    ++slot.version;
    slot.key = Hasher(slot.key).add(record->key).value();
    if (!record->replayable ||
        (unfilled && !fills_whole(*record, index, slot.bytes, bytes_before))) {
      slot.lost_from = std::min(slot.lost_from, slot.version);
    }
    slot.has_digest = false;
    slot.recipe = extended_id(slot.recipe, record->key);
    slot.trusted = slot.creator != 0 && runtime.trusted.contains(slot.recipe);
    if (runtime.log != nullptr && slot.sid != kNone) {
      LoggedStorage& logged = runtime.log->storage(slot.sid);
      if (frame.log_op >= 0) {
        logged.writers.push_back(frame.log_op);
      }
      logged.replayable = frame.log_op >= 0 && !tape.opaque_at(slot, slot.version);
      logged.keep_reason = logged.replayable    ? ""
                           : record->replayable ? "written by no operator that Lowtide saw"
                                                : record->keep_reason;
    }
  }
}

void CaptureCore::becomes_wrapper(OpFrame& frame) { frame.wrapper = true; }

void CaptureCore::abort(OpFrame& frame) noexcept {
  hooks::set_current_op(-1);
  for (SavedHolder* holder : frame.pending) {
    holder->forget_frame();
  }
  frame.pending.clear();
  if (frame.tape == nullptr) {
    return;
  }
  const std::lock_guard lock(frame.runtime->mutex);
  if (frame.record != nullptr) {
    frame.tape->discard(frame.record);
    frame.record = nullptr;
  }
  if (frame.log_op >= 0 && frame.runtime->log != nullptr) {
    frame.runtime->log->abort_op();
  }
}

void CaptureCore::abandon(OpFrame& frame) noexcept {
  abort(frame);
  frame.tape.reset();
}

}  // namespace lowtide::runtime
