#include "planner/evaluator_joint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/index.h"

namespace lowtide::planner {

JointEvaluator::JointEvaluator(const JointGraph& graph)
    : Evaluator(graph.trace().storages.size()),
      graph_(graph),
      bytes_(graph.trace().storages.size()),
      storages_(graph.trace().storages.size()),
      ops_(graph.trace().ops.size()),
      uses_(graph.trace().storages.size()),
      axis_(graph.op_count()) {
  const Trace& trace = graph.trace();
  for (StorageId s = 0; at(s) < bytes_.size(); ++s) {
    bytes_[at(s)] = trace.storages[at(s)].rounded_bytes;
    if (trace.storages[at(s)].resident) residents_ += bytes(s);
    if (trace.storages[at(s)].writers.empty()) continue;
    state(s).dropped = graph.forward(graph.producer(s)) && !graph.keepable(s);
    touch(s);
  }
  for (OpId o = 0; o < graph.op_count(); ++o) {
    mark(o);
    if (graph.forward(o)) {
      enqueue(o);
    } else {
      extra_ns_ += graph.time_ns(o);
    }
  }
  extra_ns_ -= graph.plain_ns();
  settle();
}

int64_t JointEvaluator::excess(int64_t level) {
  return axis_.excess(std::max<int64_t>(0, level - residents_));
}

void JointEvaluator::set(StorageId s, Choice choice) {
  if (this->choice(s) == choice) return;
  choose(table_, s, choice);
  state(s).dropped = choice != Choice::save;
  state(s).keep = choice != Choice::drop_once;
  touch(s);
  enqueue(graph_.producer(s));
  // Whoever reads it may read another copy now.
  for (const OpId slot : graph_.slot_readers(s)) mark(slot);
  for (const OpId reader : graph_.forward_readers(s)) {
    for (const OpId slot : op_state(reader).slots) mark(slot);
  }
  for (const OpId slot : op_state(graph_.producer(s)).slots) mark(slot);
  settle();
}

void JointEvaluator::touch(StorageId s) {
  if (std::exchange(state(s).touched, true)) return;
  touched_.push_back(s);
}

void JointEvaluator::enqueue(OpId op) {
  if (std::exchange(op_state(op).queued, true)) return;
  queue_.push_back(op);
  std::push_heap(queue_.begin(), queue_.end());
}

void JointEvaluator::mark(OpId instant) {
  if (std::exchange(op_state(instant).dirty, true)) return;
  dirty_.push_back(instant);
}

void JointEvaluator::settle() {
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const OpId op = queue_.back();
    queue_.pop_back();
    op_state(op).queued = false;
    update_op(op);
  }
  for (const StorageId s : touched_) {
    StorageState& st = state(s);
    st.touched = false;
    move(st.original, original_life(s), bytes(s));
    move(st.again, again_life(s), bytes(s));
  }
  work_ += static_cast<int64_t>(4 * touched_.size() + 4);
  touched_.clear();
  for (const OpId instant : dirty_) {
    op_state(instant).dirty = false;
    walk_instant(instant);
  }
  dirty_.clear();
}

// Whether and where the op runs, now that its readers are settled.
void JointEvaluator::update_op(OpId op) {
  OpState& o = op_state(op);
  bool runs = graph_.anchored(op);
  for (const StorageId s : graph_.outputs(op)) {
    runs = runs || !state(s).dropped;
    for (const OpId reader : graph_.forward_readers(s)) runs = runs || op_state(reader).runs;
  }
  find_slots(op);
  work_ += 2;
  if (runs == o.runs && slots_ == o.slots) return;
  if (runs != o.runs) mark(op);
  const auto times = static_cast<int64_t>(slots_.size()) - static_cast<int64_t>(o.slots.size()) +
                     (runs ? 1 : 0) - (o.runs ? 1 : 0);
  extra_ns_ += times * graph_.time_ns(op);
  for (const OpId slot : o.slots) {
    if (std::binary_search(slots_.begin(), slots_.end(), slot)) continue;
    auto& chain = op_state(slot).chain;
    chain.erase(std::lower_bound(chain.begin(), chain.end(), op));
    mark(slot);
  }
  for (const OpId slot : slots_) {
    if (std::binary_search(o.slots.begin(), o.slots.end(), slot)) continue;
    auto& chain = op_state(slot).chain;
    chain.insert(std::lower_bound(chain.begin(), chain.end(), op), op);
    mark(slot);
  }
  o.runs = runs;
  std::swap(o.slots, slots_);
  for (const StorageId s : graph_.outputs(op)) touch(s);
  for (const StorageId s : graph_.reads(op)) {
    touch(s);
    enqueue(graph_.producer(s));
  }
}

// The slots in which some output is wanted and missing, into slots_.
void JointEvaluator::find_slots(OpId op) {
  slots_.clear();
  OpId first = kNone;  // of all that are wanted and kept once recomputed
  for (const StorageId s : graph_.outputs(op)) {
    if (!state(s).dropped) continue;
    const bool keep = state(s).keep;
    const auto want = [&](OpId slot) {
      if (!keep) slots_.push_back(slot);
      if (keep && (first == kNone || slot < first)) first = slot;
    };
    const auto direct = graph_.slot_readers(s);
    if (keep && !direct.empty()) want(direct.front());
    if (!keep) std::for_each(direct.begin(), direct.end(), want);
    for (const OpId reader : graph_.forward_readers(s)) {
      const std::vector<OpId>& slots = op_state(reader).slots;
      if (keep && !slots.empty()) want(slots.front());
      if (!keep) std::for_each(slots.begin(), slots.end(), want);
    }
  }
  // A kept output wants its own first slot, unless the op runs earlier for another output.
  if (first != kNone) slots_.push_back(first);
  std::sort(slots_.begin(), slots_.end());
  slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());
  if (first != kNone && slots_.front() < first) {
    // Then `first` counts only where an output without a keep bit wants it too.
    bool wanted = false;
    for (const StorageId s : graph_.outputs(op)) {
      if (!state(s).dropped || state(s).keep) continue;
      const auto direct = graph_.slot_readers(s);
      wanted = wanted || std::binary_search(direct.begin(), direct.end(), first);
      for (const OpId reader : graph_.forward_readers(s)) {
        const std::vector<OpId>& slots = op_state(reader).slots;
        wanted = wanted || std::binary_search(slots.begin(), slots.end(), first);
      }
    }
    if (!wanted) std::erase(slots_, first);
  }
}

OpId JointEvaluator::last_backward_use(StorageId s) const {
  OpId last = kNone;
  if (!graph_.slot_readers(s).empty()) last = graph_.slot_readers(s).back();
  for (const OpId reader : graph_.forward_readers(s)) {
    const std::vector<OpId>& slots = op_state(reader).slots;
    if (!slots.empty()) last = std::max(last, slots.back());
  }
  return last;
}

JointEvaluator::Life JointEvaluator::original_life(StorageId s) const {
  const OpId producer = graph_.producer(s);
  const bool forward = graph_.forward(producer);
  if (forward && !op_state(producer).runs) return {};
  if (graph_.lasts(s)) return {producer, graph_.op_count()};
  Life life{producer, producer};
  if (!state(s).dropped) life.death = std::max(life.death, last_backward_use(s));
  const auto readers = graph_.forward_readers(s);
  for (size_t i = readers.size(); i-- > 0 && readers[i] > life.death;) {
    if (op_state(readers[i]).runs) life.death = readers[i];
  }
  return life;
}

JointEvaluator::Life JointEvaluator::again_life(StorageId s) const {
  const StorageState& st = state(s);
  const std::vector<OpId>& slots = op_state(graph_.producer(s)).slots;
  if (!st.dropped || !st.keep || slots.empty()) return {};
  return {slots.front(), std::max(slots.front(), last_backward_use(s))};
}

void JointEvaluator::move(Life& life, const Life& to, int64_t bytes) {
  if (life == to) return;
  if (life.birth != kNone && life.birth == to.birth) {  // only the death moved: the usual case
    const OpId low = std::min(life.death, to.death);
    const OpId high = std::max(life.death, to.death);
    axis_.add(std::max(life.birth + 1, low), high, to.death > life.death ? bytes : -bytes);
  } else {
    if (life.birth != kNone) axis_.add(life.birth + 1, life.death, -bytes);
    if (to.birth != kNone) axis_.add(to.birth + 1, to.death, bytes);
  }
  for (const Life& end : {life, to}) {
    if (end.birth == kNone) continue;
    mark(end.birth);
    if (end.death < graph_.op_count()) mark(end.death);
  }
  work_ += 8;
  life = to;
}

// What rises above the ranges inside one instant.
void JointEvaluator::walk_instant(OpId instant) {
  const bool forward = graph_.forward(instant);
  OpState& o = op_state(instant);
  instant_ops_.clear();
  if (!forward) instant_ops_.assign(o.chain.begin(), o.chain.end());
  if (!forward || o.runs) instant_ops_.push_back(instant);
  ++epoch_;
  const auto count = static_cast<int32_t>(instant_ops_.size());
  int64_t live = 0;
  for (int32_t i = 0; i < count; ++i) {
    for (const StorageId s : graph_.reads(instant_ops_[at(i)])) {
      Use& use = uses_[at(s)];
      if (use.epoch != epoch_) {
        // There when the instant begins.
        const StorageState& st = state(s);
        const bool copy = !forward && st.dropped;
        use.ends = (copy ? st.again : st.original).death == instant;
        use.epoch = epoch_;
        if (use.ends) live += bytes(s);
      }
      use.last = i;
    }
    const bool again = instant_ops_[at(i)] != instant;
    for (const StorageId s : graph_.outputs(instant_ops_[at(i)])) {
      const StorageState& st = state(s);
      Use& use = uses_[at(s)];
      use.last = i;
      if (!again) {
        use.epoch = epoch_;
        use.ends = st.original.death == instant;
      } else if (st.dropped && (!st.keep || st.again.birth == instant)) {
        use.epoch = epoch_;
        use.ends = !st.keep || st.again.death == instant;
      }
    }
  }
  int64_t top = 0;
  for (int32_t i = 0; i < count; ++i) {
    const OpId op = instant_ops_[at(i)];
    const bool again = op != instant;
    for (const StorageId s : graph_.outputs(op)) live += bytes(s);
    top = std::max(top, live + graph_.trace().ops[at(op)].workspace_bytes);
    for (const StorageId s : graph_.reads(op)) {
      if (uses_[at(s)].last == i && uses_[at(s)].ends) live -= bytes(s);
    }
    for (const StorageId s : graph_.outputs(op)) {
      const StorageState& st = state(s);
      const bool duplicate = again && !(st.dropped && (!st.keep || st.again.birth == instant));
      if (duplicate || (uses_[at(s)].last == i && uses_[at(s)].ends)) live -= bytes(s);
    }
    work_ += static_cast<int64_t>(2 + graph_.reads(op).size());
  }
  axis_.add(instant, instant + 1, top - o.inside_bytes);
  o.inside_bytes = top;
}

}  // namespace lowtide::planner
