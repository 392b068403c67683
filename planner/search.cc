#include "planner/search.h"

#include <algorithm>
#include <random>
#include <utility>

#include "planner/problem.h"

namespace lowtide::planner {
namespace {

// Candidates rated anew after a move, on either side of it. A dozen spans a transformer block.
constexpr size_t kNeighbours = 14;

size_t at(StorageId s) { return static_cast<size_t>(s); }

}  // namespace

Search::Search(const Simulator& simulator, Archive& archive, std::string strategy,
               int64_t work_limit)
    : simulator_(simulator),
      archive_(archive),
      strategy_(std::move(strategy)),
      work_end_(simulator.work() + work_limit) {
  const Trace& trace = simulator.trace();
  std::vector<char> waiting(trace.storages.size());
  for (const StorageId s : simulator.problem().candidates()) waiting[at(s)] = 1;
  for (const TraceSave& save : trace.saves) {
    if (std::exchange(waiting[at(save.storage)], 0)) order_.push_back(save.storage);
  }
  scores_.resize(order_.size());
}

SimulationResult Search::simulate(const DecisionTable& table, int64_t level) {
  SimulationResult result = simulator_.simulate(table, {.level_bytes = level});
  archive_.offer(table, result, strategy_);
  return result;
}

Search::State Search::evaluate(DecisionTable table) {
  SimulationResult result = simulate(table, -1);
  return {std::move(table), std::move(result)};
}

Search::State Search::restore(const Archive::Entry& entry) {
  return evaluate(DecisionTable(simulator_.trace(), entry.decisions));
}

Search::Choice Search::choice(const DecisionTable& table, StorageId s) const {
  if (table.action[at(s)] == Action::save) return Choice::save;
  return table.keep[at(s)] ? Choice::drop_keep : Choice::drop_once;
}

void Search::choose(DecisionTable& table, StorageId s, Choice choice) {
  table.action[at(s)] = choice == Choice::save ? Action::save : Action::drop;
  table.keep[at(s)] = choice == Choice::drop_once ? 0 : 1;
}

void Search::forget_scores() { std::fill(scores_.begin(), scores_.end(), Score{}); }

// Finds the best of the two other choices for one candidate.
void Search::rate(State& state, size_t index, Rule rule, int64_t level) {
  const StorageId s = order_[index];
  const Choice now = choice(state.table, s);
  Score best{.stamp = stamp_};
  for (const Choice other : {Choice::save, Choice::drop_keep, Choice::drop_once}) {
    // A keep bit matters only once the value is dropped: no need to try both at once.
    if (other == now || (now == Choice::save && other == Choice::drop_once)) continue;
    choose(state.table, s, other);
    const SimulationResult next = simulate(state.table, level);
    const int64_t gain = rule == Rule::peak ? state.peak() - next.peak_rounded_bytes
                                            : state.result.excess_bytes - next.excess_bytes;
    if (gain <= 0) continue;
    if (rule == Rule::area && level >= state.peak() && next.peak_rounded_bytes > state.peak())
      continue;
    const int64_t pay = next.recompute_ns - state.cost();
    // A move that also saves time comes before all that cost some, the largest gain first.
    const double score =
        pay > 0 ? static_cast<double>(pay) / static_cast<double>(gain) : -static_cast<double>(gain);
    if (best.gain == 0 || score < best.ns_per_byte) best = {other, score, gain, stamp_};
  }
  choose(state.table, s, now);
  scores_[index] = best;
}

bool Search::move(State& state, Rule rule, int64_t level) {
  while (!exhausted()) {
    size_t best = order_.size();
    for (size_t i = 0; i < order_.size(); ++i) {
      if (scores_[i].stamp < 0) rate(state, i, rule, level);
      if (scores_[i].gain == 0) continue;
      if (best == order_.size() || scores_[i].ns_per_byte < scores_[best].ns_per_byte) best = i;
    }
    if (best == order_.size()) {
      // Nothing by the old scores: believe it only when all are of this state.
      bool renewed = false;
      for (size_t i = 0; i < order_.size(); ++i) {
        if (scores_[i].stamp == stamp_) continue;
        rate(state, i, rule, level);
        renewed = true;
      }
      if (!renewed) return false;
      continue;
    }
    if (scores_[best].stamp != stamp_) {
      rate(state, best, rule, level);
      continue;
    }
    choose(state.table, order_[best], scores_[best].choice);
    state.result = simulate(state.table, level);
    ++stamp_;
    const size_t end = std::min(order_.size(), best + kNeighbours + 1);
    for (size_t i = best > kNeighbours ? best - kNeighbours : 0; i < end; ++i)
      scores_[i].stamp = -1;
    return true;
  }
  return false;
}

void Search::descend(State& state) {
  for (;;) {
    forget_scores();
    while (move(state, Rule::peak, -1)) {
    }
    // Stuck: several instants tie. Take off the area just below until the peak itself gives way.
    const int64_t stuck = state.peak();
    const int64_t level = stuck - stuck / 64;
    state.result = simulate(state.table, level);
    forget_scores();
    while (state.peak() >= stuck && move(state, Rule::area, level)) {
    }
    if (state.peak() >= stuck || exhausted()) return;
  }
}

bool Search::lower_to(State& state, int64_t level) {
  state.result = simulate(state.table, level);
  forget_scores();
  while (state.peak() > level && move(state, Rule::area, level)) {
  }
  return state.peak() <= level;
}

void Search::sink(State& state) {
  for (const int64_t part : {16, 64, 256}) {
    while (!exhausted()) {
      State next = state;
      if (!lower_to(next, state.peak() - state.peak() / part)) {
        if (next.peak() < state.peak()) state = std::move(next);
        break;
      }
      state = std::move(next);
    }
  }
}

void Search::sink_deeper(State& state, int attempts) {
  std::minstd_rand random;
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  for (int i = 0; i < attempts && !exhausted(); ++i) {
    State next = state;
    size_t index = below(order_.size());
    for (size_t left = 1 + below(std::min<size_t>(order_.size(), 6)); left > 0; --left) {
      choose(next.table, order_[index], static_cast<Choice>(below(3)));
      index = (index + 1) % order_.size();
    }
    lower_to(next, state.peak() - 1);
    if (std::pair(next.peak(), next.cost()) < std::pair(state.peak(), state.cost())) {
      const bool lower = next.peak() < state.peak();
      state = std::move(next);
      if (lower) sink(state);
    }
  }
}

void Search::cheapen(State& state, int64_t level) {
  struct Undo {
    StorageId storage;
    int64_t saved_ns;
  };
  std::vector<Undo> undos;
  // Leaves the choice made where it helps.
  SimulationResult next;
  const auto attempt = [&](StorageId s) {
    const Choice now = choice(state.table, s);
    for (const Choice other : {Choice::save, Choice::drop_keep}) {
      if (exhausted() || other >= now) break;
      choose(state.table, s, other);
      next = simulate(state.table, -1);
      if (next.peak_rounded_bytes <= level && next.recompute_ns < state.cost()) return true;
    }
    choose(state.table, s, now);
    return false;
  };
  for (const StorageId s : order_) {
    const Choice now = choice(state.table, s);
    if (!attempt(s)) continue;
    choose(state.table, s, now);
    undos.push_back({s, state.cost() - next.recompute_ns});
  }
  std::stable_sort(undos.begin(), undos.end(),
                   [](const Undo& a, const Undo& b) { return a.saved_ns > b.saved_ns; });
  for (const Undo& undo : undos) {
    if (attempt(undo.storage)) state.result = next;
  }
}

}  // namespace lowtide::planner
