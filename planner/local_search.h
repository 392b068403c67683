// The moves that strategy `lowtide` is made of, over an evaluator: greedy by the area above a
// level, undrops, and large-neighbourhood search (undo some drops, repair greedily with a little
// noise, undrop, keep what is no slower). One assignment of choices is current at any time; every
// one that is worth it goes to the archive. Deterministic: limits are in the evaluator's work,
// random numbers are the same on every machine. Not thread-safe; what is passed in must outlive it.
// Units: bytes (rounded), ns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/archive.h"
#include "planner/evaluator.h"

namespace lowtide::planner {

class LocalSearch {
 public:
  struct Settings {
    std::string strategy;             // named in the archive
    bool duplicates = true;           // whether keep bits may be off
    std::function<bool()> stop = {};  // asked now and then, where there is one; ends everything
  };

  LocalSearch(const Simulator& simulator, Archive& archive, Settings settings);

  [[nodiscard]] int64_t peak_bytes() { return evaluator_->peak_bytes(); }
  [[nodiscard]] int64_t extra_ns() { return evaluator_->extra_ns(); }
  [[nodiscard]] int64_t work() const { return evaluator_->work() + work_; }
  // What follows may do this much work, and then returns early with a valid assignment.
  void allow(int64_t work);
  [[nodiscard]] bool exhausted();
  // Whether Settings::stop has ended everything.
  [[nodiscard]] bool stopped() const { return stopped_; }
  // Candidates in the order they were packed.
  [[nodiscard]] const std::vector<StorageId>& order() const { return order_; }

  [[nodiscard]] std::vector<Decision> decisions() const {
    return evaluator_->table().to_decisions();
  }
  // Gives the current assignment to the archive.
  void offer();
  // Makes another assignment current, and offers it.
  void restore(const std::vector<Decision>& decisions);

  // The least time per byte of area above `level`, again and again, until the peak is at most
  // `level` (true) or no move helps (false).
  bool lower_to(int64_t level);
  // The Jane Street rule instead: the least time per byte of global peak freed.
  bool lower_peak_to(int64_t level);
  // As low as moves lead.
  void sink();
  // Again and again from random changes of a few neighbours, until that has long been in vain.
  void sink_deeper();
  // Undoes what costs time and is not needed for `level`. The peak must be at most `level`.
  void trim(int64_t level);
  // Large-neighbourhood search at `level` until exhausted. The peak must be at most `level` and
  // stays so; time never rises.
  void improve(int64_t level);

 private:
  enum class Rule : uint8_t { area, peak };
  struct Score {
    double ns_per_byte = 0;
    Choice choice = Choice::save;
    int64_t stamp = -1;  // state it was computed for
    bool helps = false;
  };
  struct Entry {  // of the queue
    double ns_per_byte;
    size_t index;
    int64_t stamp;
    bool operator<(const Entry& other) const {  // of two, the later move
      return std::pair(ns_per_byte, index) > std::pair(other.ns_per_byte, other.index);
    }
  };

  [[nodiscard]] uint64_t random() {
    // splitmix64
    uint64_t z = (random_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  [[nodiscard]] size_t below(size_t n) { return static_cast<size_t>(random() % n); }

  [[nodiscard]] Choice choice(size_t index) const { return evaluator_->choice(order_[index]); }
  void set(size_t index, Choice choice);
  void rate(size_t index, Rule rule, int64_t level, double noise);
  // Greedy over `pool` (indices); every accepted move renews the scores of near ones.
  bool lower(const std::vector<size_t>& pool, Rule rule, int64_t level, double noise,
             int64_t extra_limit);
  bool give_back(size_t index, int64_t level);
  void kick();
  void destroy();
  bool rebuild(int64_t level, int64_t limit);
  void add_to_pool(size_t index);
  void roll_back();

  const Simulator& simulator_;
  Archive& archive_;
  const Settings settings_;
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<StorageId> order_;
  std::vector<std::vector<size_t>> alike_;  // indices of equal storages of equal layers, 2 and more
  std::vector<Score> scores_;
  std::vector<Entry> queue_;
  std::vector<size_t> all_;
  std::vector<size_t> pool_;
  std::vector<char> in_pool_;
  std::vector<std::pair<size_t, Choice>> log_;  // changes to undo, while logging_
  bool logging_ = false;
  int64_t work_ = 0;  // besides the evaluator's
  int64_t end_ = 0;   // of the work that is allowed
  bool stopped_ = false;
  int64_t next_question_ = 0;  // work at which exhausted() looks at the clock again
  int64_t stamp_ = 0;
  uint64_t random_ = 1;
};

}  // namespace lowtide::planner
