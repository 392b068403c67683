// One structure of step that a session knows: its trace, the frontier of plans, the chosen plan.
//
// A session has one variant per structure (training step, evaluation with gradients, another head,
// ...). Frontiers are built when first needed. Not thread-safe; `index_at_most` may be called under
// the runtime's mutex once `prepare` has run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/trace.h"
#include "hooks/training_memory.h"
#include "planner/planner.h"
#include "runtime/plan_index.h"
#include "runtime/replay_times.h"

namespace lowtide::runtime {

class Variant {
 public:
  // `memory`: where its steps run; outlives the variant.
  Variant(Trace trace, const hooks::TrainingMemory& memory, std::string strategy = {});

  [[nodiscard]] const Trace& trace() const { return *trace_; }
  [[nodiscard]] const std::optional<Plan>& plan() const { return plan_; }
  Plan& mutable_plan() { return *plan_; }
  [[nodiscard]] const std::shared_ptr<const PlanIndex>& index() const { return index_; }
  [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }

  // Chooses the plan for a budget. Throws OutOfBudget.
  void make_plan(int64_t budget_bytes, int64_t reserve_bytes);
  // A plan made earlier. Throws Mismatch when it is not of this trace.
  void use_plan(Plan plan);
  // Takes storages that failed verification out of all plans; plan() is empty afterwards.
  void forbid(int32_t ordinal, int32_t output, const std::string& reason);
  // What recomputing each op and exchanging memory costs. Setting it empties plan().
  [[nodiscard]] Prices prices() const;
  void set_prices(const Prices& prices);

  // Plan for a step of the same structure whose activations are `ratio` times as large.
  [[nodiscard]] std::shared_ptr<const PlanIndex> scaled(double ratio, int64_t budget_bytes) const;
  // Builds what `scaled` reads. Takes planning time.
  void prepare_scaling();
  // Recipe ids of every storage that some plan may drop.
  [[nodiscard]] std::vector<uint64_t> droppable() const;
  [[nodiscard]] int64_t resident_bytes() const;
  [[nodiscard]] int64_t smallest_peak_bytes();

 private:
  const planner::Frontier& frontier();
  void forget_plans();

  std::unique_ptr<Trace> trace_;
  const hooks::TrainingMemory& memory_;
  const std::string strategy_;
  uint64_t fingerprint_ = 0;
  std::optional<planner::Frontier> frontier_;
  std::optional<Plan> plan_;
  std::shared_ptr<const PlanIndex> index_;
  mutable std::map<size_t, std::shared_ptr<const PlanIndex>> point_index_;
};

// For steps that run on `memory`, which outlives the options. `strategy`: empty = the planner's
// default.
[[nodiscard]] planner::PlannerOptions planner_options(const hooks::TrainingMemory& memory,
                                                      int64_t reserve_bytes,
                                                      const std::string& strategy = {});

}  // namespace lowtide::runtime
