// What one decision more or less does to peak and time: the simulator's answer without simulating
// the whole step. An evaluator holds one assignment of choices and changes it in place; its figures
// are exactly the simulator's for `table()`. Deterministic. Not thread-safe. The simulator must
// outlive it. Units: bytes (rounded), ns.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/simulator.h"

namespace lowtide::planner {

// `drop_once` is dropped with the keep bit off: freed after each use and recomputed again.
enum class Choice : uint8_t { save, drop_keep, drop_once };

[[nodiscard]] Choice choice_of(const DecisionTable& table, StorageId s);
void choose(DecisionTable& table, StorageId s, Choice choice);

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // `s` must be a candidate of the problem.
  virtual void set(StorageId s, Choice choice) = 0;
  [[nodiscard]] virtual int64_t peak_bytes() = 0;
  [[nodiscard]] virtual int64_t extra_ns() = 0;
  // Sum over the step of what is above `level`: a smooth measure for searches.
  [[nodiscard]] virtual int64_t excess(int64_t level) = 0;
  // Grows with the time spent, the same on every machine: about 10 ns each.
  [[nodiscard]] virtual int64_t work() const = 0;

  [[nodiscard]] const DecisionTable& table() const { return table_; }
  [[nodiscard]] Choice choice(StorageId s) const { return choice_of(table_, s); }

  // Compares with the simulator; InternalError where a figure differs.
  void check(const Simulator& simulator);

 protected:
  explicit Evaluator(size_t storages) : table_(storages) {}
  DecisionTable table_;
};

// Starts at keep all.
[[nodiscard]] std::unique_ptr<Evaluator> make_evaluator(const Simulator& simulator);

}  // namespace lowtide::planner
