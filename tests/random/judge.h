// Is a random program, trained under Lowtide, the program it was? At budgets between the smallest
// reachable one and what keeping everything takes; judged by bits and by memory counted from
// outside.
//
// One program: plain steps; a probe without a limit, verified; then a run from a stored plan at 25,
// 50 and 75 % of the way from the smallest budget to keep-all, and a run that begins without a
// trace at the half. The executable must link lowtide_mapping_counter. Not thread-safe (sessions
// and the environment are the process's).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "planner/planner.h"
#include "random/random_program.h"

namespace lowtide::testing {

struct Tally {
  int64_t programs = 0;
  int64_t refused_alike = 0;  // by autograd: with the same words under Lowtide
  int64_t pairs = 0;          // program x budget
  int64_t dropped = 0;        // pairs that dropped and recomputed at least one storage
  int64_t evicted = 0;        // pairs that pressure had to help
  int64_t diverged = 0;       // pairs that left their plan
  int64_t refused = 0;        // pairs whose budget was not met: by name, not silently
  int64_t replayed_ops = 0;
  std::map<std::string, int64_t> ran;  // instructions by name

  Tally& operator+=(const Tally& other);
  [[nodiscard]] std::string text() const;
};

// What a program needs, outside memory included: with the frontier's smallest plan and with the one
// that keeps everything. Bytes.
struct BudgetRange {
  int64_t smallest = 0;
  int64_t keep_all = 0;
  [[nodiscard]] int64_t at_percent(int64_t percent) const {
    return smallest + (keep_all - smallest) * percent / 100;
  }
};
[[nodiscard]] BudgetRange budgets_of(const Trace& trace, const planner::Frontier& frontier);

// What is wrong with the program under Lowtide; empty = nothing. Adds to `tally`.
[[nodiscard]] std::string judge(const RandomProgram& program, Tally& tally);
// A program that autograd refuses must be refused under Lowtide, in the same words.
[[nodiscard]] std::string judge_refusal(const RandomProgram& program, Tally& tally);

// Draws, judges and, where something is wrong, shrinks the program of a seed. The text names the
// seed and the small program.
[[nodiscard]] std::string judge_seed(uint64_t seed, Tally& tally);

}  // namespace lowtide::testing
