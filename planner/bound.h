// How little extra time any plan could need: a lower bound for a level of rounded peak bytes, and
// with it how far from the optimum a plan may be.
//
// A bound belongs to a plan space (relaxation.h): `single`, every keep bit on, or `general`, all
// that a plan file can say. General contains single, so its bounds hold for both. Why a bound is
// never above the optimum of its space: the relaxation admits every plan of the space at no more
// than the plan's cost (argued where it is built, relaxation_eager.cc and relaxation_joint.cc), and
// weak duality, evaluated in whole numbers, never exceeds its minimum (dual_ascent.h). The rules it
// leaves out (a recipe that its saves contradict, a trace too large) only lower it, to the trivial
// bound in the end.
//
// Deterministic; the work is bounded by a count. Not thread-safe; the trace must outlive it.
// Units: bytes (rounded, outside and reserve not included), ns.
#pragma once

#include <cstdint>
#include <memory>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::planner {

enum class Space : uint8_t { single, general };

class BoundFinder {
 public:
  // Matrix entries visited: 5e8 is about half a second, and brings a model of 48 layers to within
  // a thousandth of the relaxation's own optimum.
  static constexpr int64_t kWork = 500'000'000;

  explicit BoundFinder(const Trace& trace);
  ~BoundFinder();
  BoundFinder(const BoundFinder&) = delete;
  BoundFinder& operator=(const BoundFinder&) = delete;

  // May be negative on joint traces, where a plan can beat the one that keeps every save. Asked
  // again for the same space, level and work, it remembers.
  [[nodiscard]] int64_t lower_bound_ns(Space space, int64_t level_bytes, int64_t work = kWork);

  // Bound and gap of a plan within the level, in the smallest space that holds the plan. Both empty
  // where the bound is below zero, or refuted by the plan (a mistake in the relaxation: the asan
  // build throws InternalError); the gap alone where the bound is zero and the plan's time is not.
  [[nodiscard]] Bound judge(const Plan& plan, int64_t level_bytes, int64_t work = kWork);

 private:
  [[nodiscard]] int64_t find(Space space, int64_t level_bytes, int64_t work);

  struct Relaxed;
  const Trace& trace_;
  std::unique_ptr<Relaxed> relaxed_;  // by space, built when first asked for
};

[[nodiscard]] const char* to_string(Space space);

}  // namespace lowtide::planner
