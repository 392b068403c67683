#include "planner/evaluator_eager.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/index.h"

namespace lowtide::planner {

EagerEvaluator::EagerEvaluator(const Problem& problem)
    : Evaluator(problem.trace().storages.size()),
      problem_(problem),
      steps_(problem),
      timelines_(problem.trace().storages.size()),
      replays_(at(steps_.count())),
      awake_(at(steps_.count())),
      axis_(std::max(1, steps_.count())),
      needs_(problem.trace().storages.size()),
      op_epoch_(problem.trace().ops.size()) {
  const int32_t count = steps_.count();
  for (StorageId s = 0; at(s) < timelines_.size(); ++s) {
    if (problem.tracked(s)) {
      retell(s, -1);
    } else if (problem.trace().storages[at(s)].resident) {
      axis_.add(0, std::max(1, count), bytes(s));  // its free is part of a block
    }
  }
  for (int32_t i = 0; i < count; ++i) {
    const SimStep& step = problem.steps()[at(i)];
    if (step.kind == SimStep::Kind::alloc) axis_.add(i, i + 1, bytes(step.id));
    if (step.kind == SimStep::Kind::block) {
      axis_.add(i, i + 1, problem.block(step.id).peak.rounded);
      axis_.add(i + 1, count, problem.block(step.id).delta.rounded);
    }
  }
}

void EagerEvaluator::set(StorageId s, Choice choice) {
  if (this->choice(s) == choice) return;
  choose(table_, s, choice);
  wake_watchers(s, -1);
  retell(s, -1);
  settle();
}

bool EagerEvaluator::present(StorageId s, int32_t step) const {
  for (const Interval& interval : timelines_[at(s)].intervals) {
    if (interval.begin < step && step <= interval.end) return true;
  }
  return false;
}

bool EagerEvaluator::kept_by_saves(StorageId s, int32_t step) const {
  return table_.keep[at(s)] != 0 && steps_.saves(s, step) > 0;
}

void EagerEvaluator::wake(int32_t step) {
  if (std::exchange(awake_[at(step)], 1)) return;
  queue_.push_back(step);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

// Those after step `after`. Woken, they watch again what they still depend on: whoever does not is
// not to be woken for ever after.
void EagerEvaluator::wake_watchers(StorageId s, int32_t after) {
  auto& watchers = timelines_[at(s)].watchers;
  const auto first = std::upper_bound(watchers.begin(), watchers.end(), after);
  std::for_each(first, watchers.end(), [this](int32_t step) { wake(step); });
  watchers.erase(first, watchers.end());
}

// Works out the timeline anew. Where it differs, wakes the replays after step `after` that depend
// on it.
void EagerEvaluator::retell(StorageId s, int32_t after) {
  Timeline& timeline = timelines_[at(s)];
  const int32_t end_of_step = steps_.count();
  told_.intervals.clear();
  told_.replayed.clear();
  bool here = problem_.trace().storages[at(s)].resident;
  bool used = true;
  bool rebuilt = false;
  int32_t saves = 0;
  int32_t begin = -1;
  const auto appear = [&](int32_t step) {
    here = true;
    begin = step;
  };
  const auto die = [&](int32_t step) {
    if (!here) return;
    here = false;
    told_.intervals.push_back({begin, step});
  };
  const auto die_if_unowned = [&](int32_t step) {
    const bool kept = rebuilt && table_.keep[at(s)] != 0 && saves > 0;
    if (dropped(s) && !used && !kept) die(step);
  };
  auto adopted = timeline.adopted.begin();
  const auto adopt_before = [&](int32_t step) {
    for (; adopted != timeline.adopted.end() && *adopted < step; ++adopted) {
      if (here) continue;  // of a replay that is yet to be told anew
      appear(*adopted);
      rebuilt = true;
    }
  };
  for (const EagerSteps::Event& event : steps_.events(s)) {
    adopt_before(event.step);
    switch (event.kind) {
      case SimStep::Kind::alloc:
        appear(event.step);
        break;
      case SimStep::Kind::free:
        die(event.step);
        break;
      case SimStep::Kind::pack:
        ++saves;
        break;
      case SimStep::Kind::unpack:
        if (!here && dropped(s)) {
          told_.replayed.push_back(event.step);
          appear(event.step);
          rebuilt = true;
        }
        used = true;
        break;
      case SimStep::Kind::drop_save:
        --saves;
        die_if_unowned(event.step);
        break;
      case SimStep::Kind::release:
        used = false;
        die_if_unowned(event.step);
        break;
      case SimStep::Kind::block:
      case SimStep::Kind::op_end:
        break;
    }
  }
  adopt_before(end_of_step);
  if (here) told_.intervals.push_back({begin, end_of_step});
  work_ += static_cast<int64_t>(steps_.events(s).size()) + 4;
  if (told_.intervals == timeline.intervals && told_.replayed == timeline.replayed) return;

  for (const Interval& interval : timeline.intervals) {
    axis_.add(interval.begin + 1, std::min(interval.end + 1, end_of_step), -bytes(s));
  }
  for (const Interval& interval : told_.intervals) {
    axis_.add(interval.begin + 1, std::min(interval.end + 1, end_of_step), bytes(s));
  }
  wake_watchers(s, after);
  for (const std::vector<int32_t>* steps : {&timeline.replayed, &told_.replayed}) {
    for (const int32_t step : *steps) {
      if (step > after) wake(step);
    }
  }
  std::swap(timeline.intervals, told_.intervals);
  std::swap(timeline.replayed, told_.replayed);
  work_ += 16;
}

void EagerEvaluator::settle() {
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const int32_t step = queue_.back();
    queue_.pop_back();
    awake_[at(step)] = 0;
    work_ += 6;
    scratch_.peak_bytes = scratch_.ns = 0;
    scratch_.adopted.clear();
    const SimStep& unpack = problem_.steps()[at(step)];
    const StorageId target = problem_.trace().saves[at(unpack.id)].storage;
    const auto& replayed = timelines_[at(target)].replayed;
    if (std::binary_search(replayed.begin(), replayed.end(), step)) tell_replay(step, scratch_);
    replace(step, scratch_);
  }
}

void EagerEvaluator::replace(int32_t step, const Replay& next) {
  Replay& now = replays_[at(step)];
  axis_.add(step, step + 1, next.peak_bytes - now.peak_bytes);
  extra_ns_ += next.ns - now.ns;
  now.peak_bytes = next.peak_bytes;
  now.ns = next.ns;
  if (now.adopted == next.adopted) return;
  const std::vector<StorageId> before = std::exchange(now.adopted, next.adopted);
  for (const StorageId s : before) {
    if (std::binary_search(now.adopted.begin(), now.adopted.end(), s)) continue;
    std::erase(timelines_[at(s)].adopted, step);
    retell(s, step);
  }
  for (const StorageId s : now.adopted) {
    if (std::binary_search(before.begin(), before.end(), s)) continue;
    auto& adopted = timelines_[at(s)].adopted;
    adopted.insert(std::lower_bound(adopted.begin(), adopted.end(), step), step);
    retell(s, step);
  }
}

void EagerEvaluator::watch(StorageId s, int32_t step) {
  auto& watchers = timelines_[at(s)].watchers;
  const auto place = std::lower_bound(watchers.begin(), watchers.end(), step);
  if (place == watchers.end() || *place != step) watchers.insert(place, step);
}

EagerEvaluator::Need& EagerEvaluator::need(StorageId s, int32_t version) {
  Need& n = needs_[at(s)];
  if (n.epoch != epoch_) n = {.epoch = epoch_};
  const auto& writers = problem_.trace().storages[at(s)].writers;
  for (; n.version < version; ++n.version) {
    const OpId op = writers[at(n.version)];
    if (std::exchange(op_epoch_[at(op)], epoch_) != epoch_) ops_.push_back(op);
  }
  return n;
}

// Collects the missing writers, then runs them in completion order.
void EagerEvaluator::tell_replay(int32_t step, Replay& replay) {
  const TraceSave& save = problem_.trace().saves[at(problem_.steps()[at(step)].id)];
  const StorageId target = save.storage;
  ++epoch_;
  ops_.clear();
  need(target, save.version);
  for (size_t i = 0; i < ops_.size(); ++i) {
    for (const StorageRef& ref : problem_.reads(ops_[i])) {
      watch(ref.storage, step);
      const bool live =
          present(ref.storage, step) && steps_.content(ref.storage, step) == ref.version;
      if (!live) need(ref.storage, ref.version);
    }
  }
  std::sort(ops_.begin(), ops_.end());
  for (const OpId op : ops_) {
    for (const StorageRef& ref : problem_.reads(op)) need(ref.storage, 0).last_use = op;
  }
  int64_t live = 0;
  for (const OpId op : ops_) {
    replay.ns += problem_.trace().ops[at(op)].recompute_ns();
    const ReplayOp& effect = problem_.replay(op);
    replay.peak_bytes = std::max(replay.peak_bytes, live + effect.peak.rounded);
    live += effect.outputs.rounded;
    for (const StorageId s : problem_.outputs(op)) {
      watch(s, step);
      Need& n = needs_[at(s)];
      // An output that this replay does not read: its last use is its creation.
      if (n.epoch != epoch_) n = {.epoch = epoch_, .last_use = op};
      n.buffer = true;
    }
    for (const StorageId s : problem_.writes(op)) ++needs_[at(s)].written;
    for (const StorageId s : problem_.outputs(op)) {
      release_after(op, s, target, step, live, replay);
    }
    for (const StorageRef& ref : problem_.reads(op)) {
      release_after(op, ref.storage, target, step, live, replay);
    }
  }
  std::sort(replay.adopted.begin(), replay.adopted.end());
  work_ += static_cast<int64_t>(12 * ops_.size());
}

// After its last use in this replay a buffer becomes the storage's value, or is freed.
void EagerEvaluator::release_after(OpId op, StorageId s, StorageId target, int32_t step,
                                   int64_t& live, Replay& replay) {
  Need& n = needs_[at(s)];
  if (n.epoch != epoch_ || !n.buffer || n.last_use != op || s == target) return;
  if (dropped(s) && !present(s, step) && n.written == steps_.content(s, step) &&
      kept_by_saves(s, step)) {
    replay.adopted.push_back(s);
    n.last_use = kNone;
  } else {
    n.buffer = false;
    live -= bytes(s);
  }
}

}  // namespace lowtide::planner
