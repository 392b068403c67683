// The moves that strategies are made of: one storage at a time is dropped, kept again, or has its
// keep bit turned, and the whole step is simulated after each. Every state seen goes to the
// archive.
//
// Scores are lazy: after a move only candidates near it (in packing order) are simulated again, the
// others when they come first by their old score. Deterministic. Not thread-safe; simulator and
// archive must outlive it. Units: bytes (rounded), ns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/archive.h"
#include "planner/simulator.h"

namespace lowtide::planner {

class Search {
 public:
  struct State {
    DecisionTable table;
    SimulationResult result;
    [[nodiscard]] int64_t peak() const { return result.peak_rounded_bytes; }
    [[nodiscard]] int64_t cost() const { return result.recompute_ns; }
  };

  // Stops (see exhausted) once the simulator has done `work_limit` more work.
  Search(const Simulator& simulator, Archive& archive, std::string strategy, int64_t work_limit);

  [[nodiscard]] State evaluate(DecisionTable table);
  [[nodiscard]] State restore(const Archive::Entry& entry);

  // The Jane Street procedure: again and again the move that pays the least time per byte of global
  // peak freed, until none lowers the peak. Where several storages tie at the peak, the one that
  // takes most off the area just below the peak.
  void descend(State& state);
  // Moves that pay the least time per byte of the area above `level`, until the peak is at most
  // `level` (true) or no move makes the area smaller (false).
  bool lower_to(State& state, int64_t level);
  // Lowers the peak as far as moves lead, level by level.
  void sink(State& state);
  // Sinks again from random changes of a few neighbours, `attempts` times. The random numbers are
  // the same on every machine.
  void sink_deeper(State& state, int attempts);
  // Undoes drops, and turns keep bits on, where that saves time and the peak stays within `level`.
  void cheapen(State& state, int64_t level);

  [[nodiscard]] bool exhausted() const { return simulator_.work() >= work_end_; }
  // Recomputable saved storages in the order they were packed.
  [[nodiscard]] const std::vector<StorageId>& order() const { return order_; }

 private:
  enum class Choice : uint8_t { save, drop_keep, drop_once };
  struct Score {
    Choice choice = Choice::save;
    double ns_per_byte = 0;
    int64_t gain = 0;    // bytes; 0: no move helps
    int64_t stamp = -1;  // the state it was computed for
  };
  enum class Rule : uint8_t { peak, area };

  [[nodiscard]] Choice choice(const DecisionTable& table, StorageId s) const;
  static void choose(DecisionTable& table, StorageId s, Choice choice);
  SimulationResult simulate(const DecisionTable& table, int64_t level);
  void rate(State& state, size_t index, Rule rule, int64_t level);
  // Makes the best move; false where there is none.
  bool move(State& state, Rule rule, int64_t level);
  void forget_scores();

  const Simulator& simulator_;
  Archive& archive_;
  const std::string strategy_;
  const int64_t work_end_;
  std::vector<StorageId> order_;
  std::vector<Score> scores_;
  int64_t stamp_ = 0;
};

}  // namespace lowtide::planner
