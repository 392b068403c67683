#include "planner/local_search.h"

#include <algorithm>

#include "core/index.h"
#include "planner/periods.h"
#include "planner/problem.h"

namespace lowtide::planner {
namespace {

// Candidates rated anew after a move, on either side of it. A dozen spans a transformer block.
constexpr size_t kNeighbours = 14;
constexpr size_t kStrangers = 16;  // of the pool of a repair
constexpr int64_t kNoLimit = INT64_MAX;
constexpr int64_t kQuestionWork = 20'000;  // between two looks at the clock
// Of walks: how much more than the best they may cost, as a shift, and how long they look.
constexpr int kSlackShifts[] = {62, 10, 8, 6};
constexpr int kWalk = 64;
constexpr size_t kKick = 12;       // neighbours changed at random to leave a floor
constexpr size_t kPatience = 128;  // kicks in vain before it is given up, and two per candidate
constexpr size_t kFewDrops = 12;   // may all be chosen anew at once

}  // namespace

LocalSearch::LocalSearch(const Simulator& simulator, Archive& archive, Settings settings)
    : simulator_(simulator),
      archive_(archive),
      settings_(std::move(settings)),
      evaluator_(make_evaluator(simulator)) {
  const Trace& trace = simulator.trace();
  std::vector<char> waiting(trace.storages.size());
  for (const StorageId s : simulator.problem().candidates()) waiting[at(s)] = 1;
  for (const TraceSave& save : trace.saves) {
    if (std::exchange(waiting[at(save.storage)], 0)) order_.push_back(save.storage);
  }
  scores_.resize(order_.size());
  in_pool_.resize(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) all_.push_back(i);
  alike_ = alike_storages(trace, order_);
}

void LocalSearch::set(size_t index, Choice choice) {
  if (logging_) log_.emplace_back(index, this->choice(index));
  evaluator_->set(order_[index], choice);
}

void LocalSearch::roll_back() {
  for (size_t i = log_.size(); i-- > 0;) evaluator_->set(order_[log_[i].first], log_[i].second);
  log_.clear();
}

void LocalSearch::restore(const std::vector<Decision>& decisions) {
  const DecisionTable table(simulator_.trace(), decisions);
  for (const StorageId s : order_) evaluator_->set(s, choice_of(table, s));
  ++stamp_;
  offer();
}

void LocalSearch::offer() {
  const int64_t peak = evaluator_->peak_bytes();
  const int64_t extra = evaluator_->extra_ns();
  if (!archive_.wants(peak, extra)) return;
#ifdef LOWTIDE_CHECK_EVALUATOR
  evaluator_->check(simulator_);
#endif
  archive_.offer(evaluator_->table(), peak, extra, settings_.strategy);
  work_ += static_cast<int64_t>(order_.size()) + 100;  // the plan is copied
}

void LocalSearch::allow(int64_t work) { end_ = this->work() + work; }

bool LocalSearch::exhausted() {
  // A clock costs more than a small move, and a large one more than many clocks.
  if (settings_.stop && !stopped_ && this->work() >= next_question_) {
    next_question_ = this->work() + kQuestionWork;
    stopped_ = settings_.stop();
  }
  return stopped_ || this->work() >= end_;
}

void LocalSearch::rate(size_t index, Rule rule, int64_t level, double noise) {
  const Choice now = choice(index);
  const StorageId s = order_[index];
  const int64_t peak = evaluator_->peak_bytes();
  const int64_t extra = evaluator_->extra_ns();
  const int64_t excess = rule == Rule::area ? evaluator_->excess(level) : peak;
  Score best{.stamp = stamp_};
  for (const Choice other : {Choice::save, Choice::drop_keep, Choice::drop_once}) {
    // A keep bit matters only once the value is dropped: no need to try both at once.
    if (other == now || (now == Choice::save && other == Choice::drop_once)) continue;
    if (other == Choice::drop_once && !settings_.duplicates) continue;
    evaluator_->set(s, other);
    offer();
    const int64_t gain =
        excess - (rule == Rule::area ? evaluator_->excess(level) : evaluator_->peak_bytes());
    if (gain <= 0) continue;
    const int64_t pay = evaluator_->extra_ns() - extra;
    // A move that also saves time comes before all that cost some, the largest gain first.
    const double score =
        pay > 0 ? static_cast<double>(pay) / static_cast<double>(gain) : -static_cast<double>(gain);
    if (!best.helps || score < best.ns_per_byte) best = {score, other, stamp_, true};
  }
  evaluator_->set(s, now);
  if (noise > 0) best.ns_per_byte *= 1 + noise * static_cast<double>(below(1024)) / 1024;
  scores_[index] = best;
  if (!best.helps) return;
  queue_.push_back({best.ns_per_byte, index, stamp_});
  std::push_heap(queue_.begin(), queue_.end());
}

bool LocalSearch::lower(const std::vector<size_t>& pool, Rule rule, int64_t level, double noise,
                        int64_t extra_limit) {
  queue_.clear();
  ++stamp_;
  for (const size_t i : pool) in_pool_[i] = 1;
  if (evaluator_->peak_bytes() > level) {
    for (const size_t i : pool) {
      if (exhausted()) break;
      rate(i, rule, level, noise);
    }
  }
  bool reached = false;
  for (;;) {
    if (evaluator_->peak_bytes() <= level) {
      reached = true;
      break;
    }
    if (exhausted() || evaluator_->extra_ns() > extra_limit) break;
    if (queue_.empty()) {
      // Nothing by the old scores: believe it only when all are of this state.
      bool renewed = false;
      for (const size_t i : pool) {
        if (scores_[i].stamp == stamp_) continue;
        if (exhausted()) break;
        rate(i, rule, level, noise);
        renewed = true;
      }
      if (!renewed) break;
      continue;
    }
    const Entry best = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end());
    queue_.pop_back();
    const Score& score = scores_[best.index];
    if (!score.helps || score.stamp != best.stamp) continue;  // superseded
    if (score.stamp != stamp_) {
      rate(best.index, rule, level, noise);
      continue;
    }
    set(best.index, score.choice);
    ++stamp_;
    const size_t end = std::min(order_.size(), best.index + kNeighbours + 1);
    for (size_t i = best.index > kNeighbours ? best.index - kNeighbours : 0; i < end; ++i) {
      if (in_pool_[i]) rate(i, rule, level, noise);
    }
  }
  for (const size_t i : pool) in_pool_[i] = 0;
  return reached;
}

bool LocalSearch::lower_to(int64_t level) { return lower(all_, Rule::area, level, 0, kNoLimit); }

bool LocalSearch::lower_peak_to(int64_t level) {
  return lower(all_, Rule::peak, level, 0, kNoLimit);
}

// Undoes a drop, or turns its keep bit on, where that saves time and stays within `level`.
bool LocalSearch::give_back(size_t index, int64_t level) {
  const Choice now = choice(index);
  const int64_t extra = evaluator_->extra_ns();
  for (const Choice other : {Choice::save, Choice::drop_keep}) {
    if (other >= now) break;
    evaluator_->set(order_[index], other);
    offer();
    if (evaluator_->peak_bytes() <= level && evaluator_->extra_ns() < extra) {
      if (logging_) log_.emplace_back(index, now);
      return true;
    }
    evaluator_->set(order_[index], now);
  }
  return false;
}

void LocalSearch::trim(int64_t level) {
  // The largest savings first; each counted alone.
  std::vector<std::pair<int64_t, size_t>> savings;
  const int64_t extra = evaluator_->extra_ns();
  for (const size_t i : all_) {
    if (exhausted()) break;
    const Choice now = choice(i);
    if (!give_back(i, level)) continue;
    savings.emplace_back(evaluator_->extra_ns() - extra, i);
    evaluator_->set(order_[i], now);
  }
  std::sort(savings.begin(), savings.end());
  for (const auto& [saving, i] : savings) give_back(i, level);
  ++stamp_;
}

void LocalSearch::add_to_pool(size_t index) {
  if (std::exchange(in_pool_[index], 1)) return;
  pool_.push_back(index);
}

// Undoes some drops and collects around them what a repair may choose from.
void LocalSearch::destroy() {
  const size_t n = order_.size();
  std::vector<size_t> undone;
  const size_t kind = below(alike_.empty() ? 3 : 4);
  if (kind == 2) {
    // Many at once, where there are few.
    std::vector<size_t> drops;
    for (const size_t i : all_) {
      if (choice(i) != Choice::save) drops.push_back(i);
    }
    const size_t count = 1 + below(std::min(drops.size() + 1, kFewDrops));
    const size_t first = drops.empty() ? 0 : below(drops.size());
    for (size_t k = 0; k < std::min(count, drops.size()); ++k) {
      undone.push_back(drops[(first + k) % drops.size()]);
    }
    for (size_t k = 0; k < 4 * kNeighbours; ++k) add_to_pool(below(n));
  } else if (kind == 0) {
    // A run.
    const size_t length = 1 + below(std::max<size_t>(1, n / 8));
    const size_t first = below(n);
    for (size_t i = first; i < std::min(n, first + length); ++i) undone.push_back(i);
  } else if (kind == 1) {
    // 1 to 12 % of all drops.
    std::vector<size_t> drops;
    for (const size_t i : all_) {
      if (choice(i) != Choice::save) drops.push_back(i);
    }
    if (drops.empty()) return;
    const size_t count = std::max<size_t>(1, drops.size() * (1 + below(12)) / 100);
    for (size_t k = 0; k < count; ++k) undone.push_back(drops[below(drops.size())]);
  } else {
    // The same storage in neighbouring layers.
    const std::vector<size_t>& layers = alike_[below(alike_.size())];
    const size_t length = 1 + below(layers.size());
    const size_t first = below(layers.size());
    for (size_t k = first; k < std::min(layers.size(), first + length); ++k) {
      undone.push_back(layers[k]);
    }
  }
  for (const size_t i : undone) {
    if (choice(i) == Choice::save) continue;
    set(i, Choice::save);
    add_to_pool(i);
    const size_t reach = 1 + below(kNeighbours);
    const size_t end = std::min(n, i + reach + 1);
    for (size_t k = i > reach ? i - reach : 0; k < end && pool_.size() < 8 * kNeighbours; ++k) {
      add_to_pool(k);
    }
  }
  for (size_t k = 0; k < kStrangers; ++k) add_to_pool(below(n));
}

void LocalSearch::improve(int64_t level) {
  if (order_.empty()) return;
  std::vector<Decision> best = decisions();
  int64_t best_extra = evaluator_->extra_ns();
  logging_ = true;
  while (!exhausted() && best_extra > 0) {
    // A walk from the best that may lose a little on its way.
    const int64_t limit = best_extra + (best_extra >> kSlackShifts[below(std::size(kSlackShifts))]);
    for (int idle = 0; idle < kWalk && !exhausted(); ++idle) {
      if (!rebuild(level, limit)) {
        roll_back();
      } else if (evaluator_->extra_ns() < best_extra) {
        best_extra = evaluator_->extra_ns();
        best = decisions();
        idle = 0;
      }
    }
    restore(best);
  }
  log_.clear();
  logging_ = false;
}

// One destroy and repair; true where time stays within `limit`. The log can take it back.
bool LocalSearch::rebuild(int64_t level, int64_t limit) {
  log_.clear();
  pool_.clear();
  destroy();
  for (const size_t i : pool_) in_pool_[i] = 0;
  const double noise = static_cast<double>(below(4)) / 2;
  if (!lower(pool_, Rule::area, level, noise, limit + limit / 32)) return false;
  for (size_t k = pool_.size(); k > 1; --k) std::swap(pool_[k - 1], pool_[below(k)]);
  for (const size_t i : pool_) give_back(i, level);
  return evaluator_->extra_ns() <= limit;
}

void LocalSearch::sink() {
  std::vector<Decision> best = decisions();
  int64_t peak = evaluator_->peak_bytes();
  for (const int64_t part : {16, 64, 256, 1024}) {
    bool reached = true;
    while (reached && !exhausted()) {
      reached = lower_to(peak - std::max<int64_t>(1, peak / part));
      if (evaluator_->peak_bytes() >= peak) {
        restore(best);
        continue;
      }
      peak = evaluator_->peak_bytes();
      best = decisions();
    }
  }
}

// Random changes to a few neighbours, or one change to the same storage of all equal layers.
void LocalSearch::kick() {
  const size_t choices = settings_.duplicates ? 3 : 2;
  if (!alike_.empty() && below(2) == 0) {
    for (size_t left = 1 + below(3); left > 0; --left) {
      const auto choice = static_cast<Choice>(below(choices));
      for (const size_t i : alike_[below(alike_.size())]) set(i, choice);
    }
    return;
  }
  const size_t first = below(order_.size());
  const size_t last = std::min(order_.size(), first + 1 + below(1 + below(kKick)));
  for (size_t i = first; i < last; ++i) set(i, static_cast<Choice>(below(choices)));
}

void LocalSearch::sink_deeper() {
  std::vector<Decision> best = decisions();
  int64_t peak = evaluator_->peak_bytes();
  int64_t extra = evaluator_->extra_ns();
  const size_t patience = kPatience + 2 * order_.size();
  for (size_t idle = 0; idle < patience && !exhausted() && !order_.empty(); ++idle) {
    kick();
    // Equal peaks at less time count: a plateau is left by walking over it.
    lower(all_, Rule::area, peak - 1, static_cast<double>(below(2)), kNoLimit);
    const bool lower_peak = evaluator_->peak_bytes() < peak;
    if (lower_peak) sink();
    if (std::pair(evaluator_->peak_bytes(), evaluator_->extra_ns()) < std::pair(peak, extra)) {
      idle = 0;
      peak = evaluator_->peak_bytes();
      extra = evaluator_->extra_ns();
      best = decisions();
    } else {
      restore(best);
    }
  }
}

}  // namespace lowtide::planner
