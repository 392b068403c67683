#include "planner/problem.h"

#include <algorithm>
#include <utility>

#include "core/index.h"

namespace lowtide::planner {
namespace {

template <class T, class V>
bool contains(const std::vector<T>& items, const V& value) {
  return std::find(items.begin(), items.end(), value) != items.end();
}

SimStep::Kind step_kind(EventKind kind) {
  switch (kind) {
    case EventKind::alloc:
      return SimStep::Kind::alloc;
    case EventKind::free:
      return SimStep::Kind::free;
    case EventKind::pack:
      return SimStep::Kind::pack;
    case EventKind::unpack:
      return SimStep::Kind::unpack;
    case EventKind::drop_save:
      return SimStep::Kind::drop_save;
    case EventKind::release:
      return SimStep::Kind::release;
    case EventKind::op_begin:
    case EventKind::op_end:
      break;
  }
  return SimStep::Kind::op_end;
}

}  // namespace

Problem::Problem(const Trace& trace) : trace_(trace) {
  created_.resize(trace.storages.size());
  for (size_t s = 0; s < trace.storages.size(); ++s) {
    const TraceStorage& storage = trace.storages[s];
    if (storage.resident) resident_ += {storage.bytes, storage.rounded_bytes};
    if (storage.writers.empty()) continue;
    const TraceOp& creator = trace.ops[at(storage.writers.front())];
    created_[s] = contains(creator.outputs, static_cast<StorageId>(s));
  }
  std::vector<char> saved(trace.storages.size());
  for (const TraceSave& save : trace.saves) saved[at(save.storage)] = 1;
  for (size_t s = 0; s < trace.storages.size(); ++s) {
    const TraceStorage& storage = trace.storages[s];
    if (saved[s] && storage.recomputable && created_[s] && storage.bytes > 0) {
      candidates_.push_back(static_cast<StorageId>(s));
    }
  }
  track();
  index_ops();
  fold_steps();
}

bool Problem::creates(OpId op, StorageId s) const {
  return created(s) && trace_.storages[at(s)].writers.front() == op;
}

// The upstream closure of everything that may be dropped.
void Problem::track() {
  tracked_.resize(trace_.storages.size());
  replayable_.resize(trace_.ops.size());
  std::vector<StorageId> pending;
  const auto reach = [&](StorageId s) {
    if (created_[at(s)] && !tracked_[at(s)]) {
      tracked_[at(s)] = 1;
      pending.push_back(s);
    }
  };
  // Not only candidates: a plan from a file may name any recomputable storage.
  for (size_t s = 0; s < trace_.storages.size(); ++s) {
    if (trace_.storages[s].recomputable) reach(static_cast<StorageId>(s));
  }
  for (const TraceSave& save : trace_.saves) reach(save.storage);
  while (!pending.empty()) {
    const StorageId s = pending.back();
    pending.pop_back();
    for (const OpId writer : trace_.storages[at(s)].writers) {
      if (replayable_[at(writer)]) continue;
      replayable_[at(writer)] = 1;
      const TraceOp& op = trace_.ops[at(writer)];
      for (const StorageRef& ref : op.inputs) reach(ref.storage);
      for (const StorageId other : op.writes) reach(other);
      for (const StorageId other : op.outputs) reach(other);
    }
  }
}

void Problem::index_ops() {
  std::vector<std::pair<size_t, size_t>> bracket(trace_.ops.size());  // event range inside the op
  for (size_t e = 0; e < trace_.events.size(); ++e) {
    const TraceEvent& event = trace_.events[e];
    if (event.kind == EventKind::op_begin) bracket[at(event.id)].first = e + 1;
    if (event.kind == EventKind::op_end) bracket[at(event.id)].second = e;
  }
  replays_.resize(trace_.ops.size());
  std::vector<StorageRef> reads;
  std::vector<StorageId> writes;
  std::vector<StorageId> outputs;
  std::vector<int32_t> slice;
  for (size_t o = 0; o < trace_.ops.size(); ++o) {
    reads.clear(), writes.clear(), outputs.clear(), slice.clear();
    const TraceOp& op = trace_.ops[o];
    if (replayable_[o]) {
      for (const StorageRef& ref : op.inputs) {
        if (created(ref.storage) && ref.version > 0) reads.push_back(ref);
      }
      for (const StorageId s : op.outputs) {
        if (creates(static_cast<OpId>(o), s)) writes.push_back(s);
      }
      for (const StorageId s : op.writes) {
        if (!created(s) || contains(writes, s)) continue;
        const auto& writers = trace_.storages[at(s)].writers;
        const auto position = std::find(writers.begin(), writers.end(), static_cast<OpId>(o));
        if (position == writers.end()) continue;
        writes.push_back(s);
        // An op that writes in place needs the buffer it writes to, whether it reads it or not.
        const StorageRef before{s, static_cast<int32_t>(position - writers.begin())};
        if (before.version > 0 && !contains(reads, before)) reads.push_back(before);
      }

      const auto [begin, end] = bracket[o];
      std::vector<StorageId> allocated;
      std::vector<StorageId> freed;
      for (size_t e = begin; e < end; ++e) {
        const TraceEvent& event = trace_.events[e];
        if (event.kind == EventKind::alloc) allocated.push_back(event.id);
        if (event.kind == EventKind::free) freed.push_back(event.id);
      }
      // An output allocated outside the slice (before its op began) is allocated first here; one
      // freed inside the slice is a temporary.
      for (const StorageId s : op.outputs) {
        if (contains(freed, s) || !creates(static_cast<OpId>(o), s)) continue;
        outputs.push_back(s);
        if (!contains(allocated, s)) slice.push_back(s);
      }
      std::vector<StorageId> leftover;
      for (size_t e = begin; e < end; ++e) {
        const TraceEvent& event = trace_.events[e];
        if (event.kind == EventKind::alloc) {
          slice.push_back(event.id);
          if (!contains(outputs, event.id)) leftover.push_back(event.id);
        } else if (event.kind == EventKind::free && contains(leftover, event.id)) {
          slice.push_back(~event.id);
          std::erase(leftover, event.id);
        }
      }
      for (const StorageId s : leftover) slice.push_back(~s);

      ReplayOp& replay = replays_[o];
      Amount live;
      for (const int32_t item : slice) {
        if (item < 0) {
          live -= size(~item);
          continue;
        }
        live += size(item);
        replay.peak.requested = std::max(replay.peak.requested, live.requested);
        replay.peak.rounded = std::max(replay.peak.rounded, live.rounded);
      }
      replay.outputs = live;
    }
    reads_.add_row(reads);
    writes_.add_row(writes);
    outputs_.add_row(outputs);
    slices_.add_row(slice);
  }
}

void Problem::fold_steps() {
  Amount live;  // within the open block
  bool open = false;
  for (size_t e = 0; e < trace_.events.size(); ++e) {
    const TraceEvent& event = trace_.events[e];
    const auto index = static_cast<int32_t>(e);
    if (event.kind == EventKind::op_begin) continue;
    if (event.kind == EventKind::op_end) {
      const TraceOp& op = trace_.ops[at(event.id)];
      const auto is_tracked = [&](StorageId s) { return tracked(s); };
      if (std::none_of(op.writes.begin(), op.writes.end(), is_tracked) &&
          std::none_of(op.outputs.begin(), op.outputs.end(), is_tracked)) {
        continue;
      }
    }
    const bool memory = event.kind == EventKind::alloc || event.kind == EventKind::free;
    StorageId storage = kNone;
    if (memory || event.kind == EventKind::release) storage = event.id;
    if (event.kind == EventKind::pack || event.kind == EventKind::unpack ||
        event.kind == EventKind::drop_save) {
      storage = trace_.saves[at(event.id)].storage;
    }
    const SimStep step{step_kind(event.kind), event.id, index};
    if (storage != kNone && !tracked(storage)) {
      if (!memory) continue;
      unfolded_steps_.push_back(step);
      if (!open) {
        open = true;
        live = {};
        steps_.push_back({SimStep::Kind::block, static_cast<int32_t>(blocks_.size()), index});
        blocks_.emplace_back();
        blocks_.back().peak_event = index;
      }
      Block& block = blocks_.back();
      if (event.kind == EventKind::free) {
        live -= size(storage);
      } else {
        live += size(storage);
        if (live.requested > block.peak.requested) {
          block.peak.requested = live.requested;
          block.peak_event = index;
        }
        block.peak.rounded = std::max(block.peak.rounded, live.rounded);
      }
      block.delta = live;
      continue;
    }
    // Bookkeeping of tracked storages that moves no bytes does not close a block's run of bytes,
    // but their order must stay: close it.
    open = false;
    steps_.push_back(step);
    unfolded_steps_.push_back(step);
  }
}

std::vector<Cut> Problem::forward_cuts() const {
  // Last forward reader of every storage; phases other than forward end the search.
  std::vector<OpId> last_read(trace_.storages.size(), kNone);
  OpId forward_end = 0;
  for (size_t o = 0; o < trace_.ops.size(); ++o) {
    if (trace_.ops[o].phase != Phase::forward) continue;
    forward_end = static_cast<OpId>(o);
    for (const StorageRef& ref : trace_.ops[o].inputs) last_read[at(ref.storage)] = forward_end;
  }
  std::vector<char> candidate(trace_.storages.size());
  for (const StorageId s : candidates_) candidate[at(s)] = 1;

  std::vector<Cut> cuts;
  std::vector<StorageId> open;
  for (OpId o = 0; o < forward_end; ++o) {
    if (!replayable_[at(o)]) continue;
    for (const StorageId s : outputs(o)) open.push_back(s);
    std::erase_if(open, [&](StorageId s) { return last_read[at(s)] <= o; });
    if (open.empty()) continue;
    Cut cut;
    cut.after = o;
    for (const StorageId s : open) {
      cut.crossing_bytes += size(s).rounded;
      if (candidate[at(s)]) cut.crossing.push_back(s);
    }
    // The same crossing set as one op earlier (an op that only made temporaries): one cut.
    if (!cuts.empty() && cuts.back().crossing == cut.crossing) cuts.pop_back();
    if (!cut.crossing.empty()) cuts.push_back(std::move(cut));
  }
  return cuts;
}

}  // namespace lowtide::planner
