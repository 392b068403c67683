#include "planner/relaxation.h"

#include <algorithm>

#include "planner/joint_graph.h"
#include "planner/problem.h"

namespace lowtide::planner {
namespace {

// A dozen triggers span a transformer block, and more slots per op gain little there; small traces
// of another shape (an unrolled recurrence) can afford to have them all.
constexpr size_t kWidth = 12;
constexpr size_t kSlots = 3000;  // of all ops together, where that gives more
// Above this a bound's work would not pay for one round of the ascent.
constexpr size_t kMostOps = 200'000;

}  // namespace

int32_t Relaxation::add_variable(int64_t cost, int32_t at_most) {
  cost_ns.push_back(cost);
  limit.push_back(at_most);
  return static_cast<int32_t>(cost_ns.size()) - 1;
}

void Relaxation::add_row(std::initializer_list<Term> terms, int32_t at_least) {
  rows.add_row({terms.begin(), terms.size()});
  least.push_back(at_least);
}

void Relaxation::add_implication(int32_t if_this, int32_t then) {
  if (then >= 0) add_row({{then, 1}, {if_this, -1}}, 0);
}

void Relaxation::add_span(int32_t variable, int32_t begin, int32_t end, int64_t bytes) {
  if (begin < end && bytes != 0) spans.push_back({variable, begin, end, bytes});
}

int32_t Relaxation::add_staying(int32_t replayed, int32_t dropped, int32_t freed) {
  if (dropped < 0 && freed < 0) return replayed;
  const int32_t stays = add_variable(0);
  if (dropped < 0) {
    add_row({{stays, 1}, {replayed, -1}, {freed, 1}}, 0);
  } else if (freed < 0) {
    add_row({{stays, 1}, {replayed, -1}, {dropped, -1}}, -1);
  } else {
    add_row({{stays, 1}, {replayed, -1}, {dropped, -1}, {freed, 1}}, -1);
  }
  return stays;
}

Relaxation relax(const Trace& trace, Space space, size_t width) {
  if (trace.ops.empty() || trace.ops.size() > kMostOps) return {};
  if (width == 0) width = std::max(kWidth, kSlots / std::max<size_t>(trace.ops.size(), 1));
  if (trace.execution == Execution::joint) return relax_joint(JointGraph(trace), space, width);
  return relax_eager(Problem(trace), space, width);
}

}  // namespace lowtide::planner
