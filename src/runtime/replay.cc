#include "runtime/replay.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "runtime/internal_guards.h"
#include "runtime/rescue.h"
#include "runtime/storage_bytes.h"

namespace lowtide::runtime {
namespace {

// The clock of ops without what the allocator's exchanges take: these have a price of their own.
int64_t work_ns(const Runtime& runtime) {
  return profiler::now_ns(runtime.clock) - runtime.memory.stats().exchange_ns;
}

// Puts every generator that a replay touches back to where the program had left it.
class GeneratorKeeper {
 public:
  // Default generators are kept in any case: an op may draw from them without declaring that.
  // `of_device`: undefined on the CPU.
  explicit GeneratorKeeper(const at::Generator& of_device) {
    about_to_set(at::globalContext().defaultGenerator(c10::kCPU));
    if (of_device.defined()) {
      about_to_set(of_device);
    }
  }
  GeneratorKeeper(const GeneratorKeeper&) = delete;
  GeneratorKeeper& operator=(const GeneratorKeeper&) = delete;
  ~GeneratorKeeper() {
    for (const auto& state : before_) {
      state->restore();
    }
  }
  void about_to_set(const at::Generator& generator) {
    for (const auto& state : before_) {
      if (state->generator() == generator) {
        return;
      }
    }
    before_.push_back(RngState::capture(generator));
  }

 private:
  std::vector<std::unique_ptr<RngState>> before_;
};

// Division of integers, factories and the like ask for it.
class DefaultDtype {
 public:
  explicit DefaultDtype(caffe2::TypeMeta dtype) : before_(c10::get_default_dtype()) {
    if (dtype != before_) {
      c10::set_default_dtype(dtype);
    }
  }
  ~DefaultDtype() {
    if (c10::get_default_dtype() != before_) {
      c10::set_default_dtype(before_);
    }
  }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta before_;
};

class Replay {
 public:
  Replay(Runtime& runtime, std::shared_ptr<Tape> tape, int32_t target, int32_t version, bool beside)
      : runtime_(runtime),
        tape_(std::move(tape)),
        target_(target),
        version_(version),
        beside_(beside),
        stream_(runtime.streams.current()) {}

  StoragePtr run() {
    {
      const std::lock_guard lock(runtime_.mutex);
      collect();
    }
    order_streams();
    const BelowCapture below;
    GeneratorKeeper generators(runtime_.device_generator);
    for (size_t position = 0; position < ops_.size(); ++position) {
      run_op(position, generators);
    }
    const std::lock_guard lock(runtime_.mutex);
    const auto found = buffers_.find(target_);
    if (found != buffers_.end()) {
      return std::move(found->second.storage);
    }
    StoragePtr live = tape_->slot(target_).identity.lock();
    LOWTIDE_CHECK(live, "a replay ended without its target");
    return live;
  }

 private:
  struct Buffer {
    StoragePtr storage;
    int32_t version = 0;
  };

  // A reference that the replay can read from the live storage. Caller holds the mutex.
  bool live_at(int32_t slot, int32_t version) {
    const Slot& s = tape_->slot(slot);
    return s.version == version && s.alive() && !(beside_ && slot == target_);
  }

  void collect() {
    std::vector<int32_t> done(static_cast<size_t>(tape_->slots()), 0);
    std::vector<char> marked(static_cast<size_t>(tape_->records()), 0);
    std::vector<std::pair<int32_t, int32_t>> stack{{target_, version_}};
    while (!stack.empty()) {
      const auto [index, version] = stack.back();
      stack.pop_back();
      const Slot& slot = tape_->slot(index);
      int32_t& have = done[static_cast<size_t>(index)];
      if (version <= have) {
        continue;
      }
      if (static_cast<size_t>(version) > slot.writers.size() ||
          (tape_->opaque_at(slot, version) && !tape_->unfilled_at(slot, version))) {
        throw InternalError("a tensor made by " + describe(*tape_, slot) +
                            " is needed for recomputation but cannot be rebuilt. Fix: run with "
                            "LOWTIDE_DISABLE=1 and report the op");
      }
      for (int32_t k = have; k < version; ++k) {
        const int32_t number = slot.writers[static_cast<size_t>(k)];
        char& seen = marked[static_cast<size_t>(number)];
        if (seen != 0) {
          continue;
        }
        seen = 1;
        ops_.push_back(number);
        add_stream(tape_->record(number).stream);
        for (const TensorRef& ref : tape_->record(number).tensors) {
          if (ref.kind != RefKind::slot) {
            continue;
          }
          if (!ref.written && live_at(ref.index, ref.version)) {
            pins_[ref.index] = tape_->slot(ref.index).identity.lock();
            add_stream(tape_->written_on(tape_->slot(ref.index)));
          } else {
            stack.emplace_back(ref.index, ref.version);
          }
        }
      }
      have = version;
    }
    std::sort(ops_.begin(), ops_.end());
    for (size_t position = 0; position < ops_.size(); ++position) {
      const OpRecord& record = tape_->record(ops_[position]);
      for (const TensorRef& ref : record.tensors) {
        if (ref.kind == RefKind::slot) {
          last_use_[ref.index] = position;
        }
      }
      for (const OutputRef& output : record.outputs) {
        last_use_[output.slot] = position;
      }
    }
  }

  void add_stream(c10::StreamId stream) {
    if (stream != stream_ && std::find(others_.begin(), others_.end(), stream) == others_.end()) {
      others_.push_back(stream);
    }
  }

  // What the forward's ops had read when they ran is read here on another stream.
  void order_streams() {
    for (const c10::StreamId other : others_) {
      runtime_.streams.wait_for(other);
    }
  }

  // The storage a reference stands for. Called without the mutex.
  StoragePtr resolve(const OpRecord& record, const TensorRef& ref) {
    StoragePtr storage = find_or_rebuild(record, ref);
    if (!others_.empty() && storage) {
      runtime_.streams.read_on_current(*storage);
    }
    return storage;
  }

  StoragePtr find_or_rebuild(const OpRecord& record, const TensorRef& ref) {
    {
      const std::lock_guard lock(runtime_.mutex);
      if (ref.kind == RefKind::external) {
        return resolve_external(record, ref);
      }
      const auto found = buffers_.find(ref.index);
      if (found != buffers_.end() && found->second.version == ref.version) {
        return found->second.storage;
      }
      if (!ref.written && live_at(ref.index, ref.version)) {
        if (StoragePtr live = tape_->slot(ref.index).identity.lock()) {
          return live;
        }
      }
    }
    // It was live when the replay was planned and is gone: its last owner let it go meanwhile.
    Replay nested(runtime_, tape_, ref.index, ref.version, false);
    StoragePtr storage = nested.run();
    if (ref.written) {
      buffers_[ref.index] = {storage, ref.version};
    }
    return storage;
  }

  StoragePtr resolve_external(const OpRecord& record, const TensorRef& ref) {
    const External& external = tape_->external(ref.index);
    if (!external.storage) {
      LOWTIDE_CHECK(record.info->writes_only_side_state && ref.written,
                    "an input of " + record.info->name + " was overwritten and not rescued");
      return {};
    }
    if (!external.rescued && !external.counter.unique() &&
        external.counter.current_version() != external.counter_value &&
        !record.info->writes_only_side_state) {
      throw InternalError("an input of " + record.info->name + " (forward op #" +
                          std::to_string(record.ordinal) + ") is at version " +
                          std::to_string(external.counter.current_version()) + ", expected " +
                          std::to_string(external.counter_value) +
                          ": it was changed in place where Lowtide could not see it. Fix: make the "
                          "change inside the step, or run with LOWTIDE_DISABLE=1");
    }
    if (external.rescued) {
      runtime_.streams.wait_for(external.rescued_on);
    }
    return external.storage;
  }

  at::Tensor argument_tensor(const OpRecord& record, const TensorRef& ref) {
    if (ref.kind == RefKind::shape_only) {
      return ref.geometry.without_bytes();
    }
    StoragePtr storage = resolve(record, ref);
    if (ref.kind == RefKind::external && ref.written) {
      storage = storage ? clone_storage(storage) : scratch_storage(ref.geometry);
    }
    if (!ref.geometry.fits(storage->nbytes())) {
      throw InternalError(
          "an input of " + record.info->name + " (forward op #" + std::to_string(record.ordinal) +
          ") has only " + std::to_string(storage->nbytes()) +
          " bytes left: its storage was resized after the forward pass. Fix: refill it "
          "before backward, or run with LOWTIDE_DISABLE=1");
    }
    return ref.geometry.view_of(std::move(storage));
  }

  void run_op(size_t position, GeneratorKeeper& generators) {
    const OpRecord* record = nullptr;
    {
      const std::lock_guard lock(runtime_.mutex);
      record = &tape_->record(ops_[position]);
    }
    if (!record->replayable) {
      throw InternalError(
          record->info->name +
          " is needed for recomputation but cannot be replayed: " + record->keep_reason);
    }
    torch::jit::Stack stack(record->arguments.begin(), record->arguments.end());
    for (const TensorRef& ref : record->tensors) {
      at::Tensor tensor = argument_tensor(*record, ref);
      c10::IValue& argument = stack[static_cast<size_t>(ref.argument)];
      if (ref.element < 0) {
        argument = std::move(tensor);
      } else {
        fill_element(argument, record->arguments[static_cast<size_t>(ref.argument)],
                     static_cast<size_t>(ref.element), std::move(tensor));
      }
    }
    const bool timed = runtime_.replay_times != nullptr && record->ordinal >= 0;
    const int64_t start = timed ? work_ns(runtime_) : 0;
    if (record->rng != nullptr) {
      generators.about_to_set(record->rng->generator());
      record->rng->restore();
    }
    {
      const c10::AutoGradMode grad_mode(record->grad_mode);
      const DefaultDtype default_dtype(record->default_dtype);
      record->info->handle.callBoxed(&stack);
    }
    take_results(*record, stack, position);
    if (timed) {
      const int64_t ns = work_ns(runtime_) - start;
      const std::lock_guard lock(runtime_.mutex);
      if (runtime_.plan.active() && !runtime_.plan.sizes_differ) {
        runtime_.replay_times->add(record->ordinal, ns);
      }
    }
  }

  // Lists are shared by reference: the recorded one stays without tensors.
  static void fill_element(c10::IValue& argument, const c10::IValue& recorded, size_t k,
                           at::Tensor tensor) {
    if (argument.isTensorList()) {
      if (argument.is(recorded)) {
        argument = argument.toTensorList().copy();
      }
      argument.toTensorList().set(k, std::move(tensor));
    } else {
      if (argument.is(recorded)) {
        argument = argument.toList().copy();
      }
      argument.toList().set(k, std::move(tensor));
    }
  }

  void take_results(const OpRecord& record, torch::jit::Stack& stack, size_t position) {
    std::vector<StoragePtr> released;
    const std::lock_guard lock(runtime_.mutex);
    runtime_.counters.replayed_ops += 1;
    const size_t first = stack.size() - record.info->returns;
    for (const OutputRef& output : record.outputs) {
      const c10::IValue& value = stack[first + static_cast<size_t>(output.result)];
      const at::Tensor& tensor =
          output.element < 0 ? value.toTensor()
                             : value.toListRef()[static_cast<size_t>(output.element)].toTensor();
      buffers_[output.slot] = {StoragePtr::reclaim_copy(storage_of(tensor)), 1};
    }
    std::vector<int32_t> written;
    for (const TensorRef& ref : record.tensors) {
      if (ref.written && ref.kind == RefKind::slot &&
          std::find(written.begin(), written.end(), ref.index) == written.end()) {
        written.push_back(ref.index);
        ++buffers_[ref.index].version;
      }
    }
    for (auto it = pins_.begin(); it != pins_.end();) {
      if (last_use_[it->first] <= position) {
        released.push_back(std::move(it->second));
        it = pins_.erase(it);
      } else {
        ++it;
      }
    }
    for (auto it = buffers_.begin(); it != buffers_.end();) {
      Slot& slot = tape_->slot(it->first);
      const bool complete = it->second.version == slot.version;
      const bool wanted = !beside_ && it->first != target_ && complete && slot.holders > 0 &&
                          slot.keep_after_recompute && !slot.alive();
      if (wanted) {
        adopt(it->first, it->second.storage, true);
      }
      // What others want too stays here until this replay has read it: pressure may take it from
      // them.
      if (it->first != target_ && last_use_[it->first] <= position) {
        released.push_back(std::move(it->second.storage));
        it = buffers_.erase(it);
      } else {
        ++it;
      }
    }
  }

 public:
  // `storage` is the slot's live value from now on. Caller holds the mutex.
  static void adopt(Runtime& runtime, Tape& tape, int32_t index, const StoragePtr& storage,
                    bool hold) {
    Slot& slot = tape.slot(index);
    LOWTIDE_CHECK(static_cast<int64_t>(storage->nbytes()) == slot.bytes,
                  "recomputing the output of " + describe(tape, slot) + " gave " +
                      std::to_string(storage->nbytes()) + " bytes instead of " +
                      std::to_string(slot.bytes));
    if (slot.has_digest && runtime.digest_of_values(*storage) == slot.digest) {
      slot.has_digest = false;
      if (slot.creator != 0) {
        slot.trusted = true;
        runtime.trusted.insert(slot.recipe);
        runtime.counters.verified += runtime.verify ? 1 : 0;
      }
    } else if (slot.has_digest) {
      runtime.counters.mismatched += 1;
      throw InternalError(
          "recomputing the output of " + describe(tape, slot) +
          " gave other bytes than the forward pass: an op that draws no declared "
          "randomness is not deterministic, or a kernel wrote behind torch's back. "
          "Fix: give a budget that needs no recomputation in the first steps, so that "
          "the op is found by verification");
    }
    tape.bind(index, storage);
    slot.rebuilt_on = runtime.streams.current();
    if (hold) {
      slot.held = storage;
    }
    if (runtime.log != nullptr && slot.sid != kNone) {
      runtime.log->remap(storage->data(), slot.sid);
    }
  }

 private:
  void adopt(int32_t index, const StoragePtr& storage, bool hold) {
    adopt(runtime_, *tape_, index, storage, hold);
  }

  Runtime& runtime_;
  std::shared_ptr<Tape> tape_;
  int32_t target_;
  int32_t version_;
  bool beside_;
  const c10::StreamId stream_;         // that it runs on
  std::vector<c10::StreamId> others_;  // that what it reads was written on
  std::vector<int32_t> ops_;
  std::unordered_map<int32_t, size_t> last_use_;
  std::unordered_map<int32_t, Buffer> buffers_;
  // Live inputs, held until their last use. Letting pressure take them saves little and makes
  // replays nest: each would evict what the next one reads.
  std::unordered_map<int32_t, StoragePtr> pins_;
};

}  // namespace

StoragePtr rebuild(Runtime& runtime, const std::shared_ptr<Tape>& tape, int32_t index) {
  const InternalScope internal(runtime);
  int32_t version = 0;
  {
    const std::lock_guard lock(runtime.mutex);
    version = tape->slot(index).version;
    if (runtime.capturing()) {
      throw InternalError("the output of " + describe(*tape, tape->slot(index)) +
                          " would have to be recomputed while a CUDA graph is captured. Fix: "
                          "capture outside of Lowtide's steps, or run with LOWTIDE_DISABLE=1");
    }
  }
  const int64_t start = work_ns(runtime);
  Replay replay(runtime, tape, index, version, false);
  StoragePtr storage = replay.run();
  const int64_t ns = work_ns(runtime) - start;
  const std::lock_guard lock(runtime.mutex);
  runtime.counters.recompute_ns += ns;
  Slot& slot = tape->slot(index);
  if (!slot.alive()) {
    Replay::adopt(runtime, *tape, index, storage, slot.holders > 0 && slot.keep_after_recompute);
  }
  return storage;
}

void rebuild_all(Runtime& runtime) {
  std::vector<std::shared_ptr<Tape>> tapes;
  {
    const std::lock_guard lock(runtime.mutex);
    tapes = runtime.tapes();
  }
  for (const std::shared_ptr<Tape>& tape : tapes) {
    for (int32_t i = 0; i < tape->slots(); ++i) {
      StoragePtr live;
      {
        const std::lock_guard lock(runtime.mutex);
        if (tape->slot(i).holders == 0 || tape->slot(i).held) {
          continue;
        }
        live = tape->slot(i).identity.lock();
      }
      if (!live) {
        live = rebuild(runtime, tape, i);
      }
      const std::lock_guard lock(runtime.mutex);
      tape->slot(i).held = live;
    }
  }
}

StoragePtr rebuild_beside(Runtime& runtime, const std::shared_ptr<Tape>& tape, int32_t index) {
  const InternalScope internal(runtime);
  int32_t version = 0;
  {
    const std::lock_guard lock(runtime.mutex);
    version = tape->slot(index).version;
  }
  Replay replay(runtime, tape, index, version, true);
  return replay.run();
}

bool secure_recipe(Tape& tape, int32_t index) {
  Slot& target = tape.slot(index);
  if (target.writers.empty() || static_cast<size_t>(target.version) != target.writers.size() ||
      tape.opaque_at(target, target.version)) {
    return false;
  }
  if (tape.opaque_reads == 0 && tape.lost_inputs == 0) {
    return true;
  }
  std::vector<char> seen(static_cast<size_t>(tape.slots()), 0);
  std::vector<int32_t> stack{index};
  std::vector<int32_t> pins;
  seen[static_cast<size_t>(index)] = 1;
  while (!stack.empty()) {
    const int32_t current = stack.back();
    stack.pop_back();
    for (const int32_t writer : tape.slot(current).writers) {
      const OpRecord& record = tape.record(writer);
      for (const TensorRef& ref : record.tensors) {
        if (ref.kind == RefKind::external && !tape.external(ref.index).storage &&
            !(ref.written && record.info->writes_only_side_state)) {
          return false;
        }
        if (ref.kind != RefKind::slot) {
          continue;
        }
        Slot& source = tape.slot(ref.index);
        if (tape.opaque_at(source, ref.version) &&
            !(ref.written && tape.unfilled_at(source, ref.version))) {
          if (ref.written || !source.alive() || source.version != ref.version) {
            return false;
          }
          pins.push_back(ref.index);
        } else if (seen[static_cast<size_t>(ref.index)] == 0) {
          seen[static_cast<size_t>(ref.index)] = 1;
          stack.push_back(ref.index);
        }
      }
    }
  }
  for (const int32_t pin : pins) {
    if (std::find(target.pins.begin(), target.pins.end(), pin) == target.pins.end()) {
      Slot& source = tape.slot(pin);
      target.pins.push_back(pin);
      ++source.pinned_by;
      if (!source.held) {
        source.held = source.identity.lock();
      }
    }
  }
  return true;
}

void unpin(Tape& tape, Slot& slot, std::vector<StoragePtr>& released) {
  for (const int32_t pin : slot.pins) {
    Slot& source = tape.slot(pin);
    if (--source.pinned_by == 0 && source.holders == 0 && source.held) {
      released.push_back(std::move(source.held));
      source.held.reset();
    }
  }
  slot.pins.clear();
}

std::string describe(Tape& tape, const Slot& slot) {
  if (slot.writers.empty()) {
    return "an unknown op";
  }
  const OpRecord& record = tape.record(slot.writers.back());
  return record.info->name +
         (record.ordinal >= 0 ? " (forward op #" + std::to_string(record.ordinal) + ")" : "");
}

}  // namespace lowtide::runtime
