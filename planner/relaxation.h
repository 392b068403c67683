// A linear relaxation of "which plans of this trace stay within a level, and what do they cost":
// every plan of the named space gives a point of it that costs no more than the plan. What the
// relaxation needs at least, no plan of the space can beat. Built once per trace and space; the
// level comes later, so that one serves many budgets.
//
//   minimise    base_ns + sum cost_ns * x          0 <= x <= limit, x of each variable
//   such that   sum factor * x >= least            for each row
//               base_bytes + sum bytes * x <= level   for each moment, over the spans that cover it
//
// Space `single`: a subset of the saves is dropped, every keep bit is on. Space `general`: any keep
// bits, that is, all that a plan file can say. A value, const after it is built: thread-safe.
// Units: bytes (rounded), ns.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "planner/bound.h"
#include "planner/rows.h"

namespace lowtide::planner {

struct Relaxation {
  struct Term {
    int32_t variable = 0;
    int32_t factor = 1;
  };
  // Moments [begin, end) hold `bytes` more for each unit of the variable.
  struct Span {
    int32_t variable = 0;
    int32_t begin = 0;
    int32_t end = 0;
    int64_t bytes = 0;
  };

  std::vector<int64_t> cost_ns;
  std::vector<int32_t> limit;
  Rows<Term> rows;
  std::vector<int32_t> least;  // of each row
  std::vector<int64_t> base_bytes;
  std::vector<Span> spans;
  int64_t base_ns = 0;
  // What the variables say of a plan, for those who solve the relaxation in whole numbers.
  struct Choice {
    StorageId storage = kNone;
    int32_t dropped = -1;
    int32_t freed = -1;  // keep bit off; -1 in `single`
  };
  std::vector<Choice> choices;

  int32_t add_variable(int64_t cost, int32_t at_most = 1);
  void add_row(std::initializer_list<Term> terms, int32_t at_least);
  // `if_this` implies `then`: then >= if_this. Nothing where there is no such variable (-1).
  void add_implication(int32_t if_this, int32_t then);
  void add_span(int32_t variable, int32_t begin, int32_t end, int64_t bytes);
  // "Replayed, and what that made stays": where that takes that it is dropped (`dropped`) and its
  // keep bit is on (not `freed`). -1: does not take it.
  int32_t add_staying(int32_t replayed, int32_t dropped, int32_t freed);
};

class JointGraph;
class Problem;

// `width`: slots told apart per op (replay_windows.h); 0 chooses by size. Empty where the trace is
// too large to be worth it.
[[nodiscard]] Relaxation relax(const Trace& trace, Space space, size_t width = 0);
[[nodiscard]] Relaxation relax_joint(const JointGraph& graph, Space space, size_t width);
[[nodiscard]] Relaxation relax_eager(const Problem& problem, Space space, size_t width);

}  // namespace lowtide::planner
