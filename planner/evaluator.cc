#include "planner/evaluator.h"

#include <string>

#include "core/error.h"
#include "core/index.h"
#include "planner/evaluator_eager.h"
#include "planner/evaluator_joint.h"

namespace lowtide::planner {

Choice choice_of(const DecisionTable& table, StorageId s) {
  if (table.action[at(s)] == Action::save) return Choice::save;
  return table.keep[at(s)] != 0 ? Choice::drop_keep : Choice::drop_once;
}

void choose(DecisionTable& table, StorageId s, Choice choice) {
  table.action[at(s)] = choice == Choice::save ? Action::save : Action::drop;
  table.keep[at(s)] = choice == Choice::drop_once ? 0 : 1;
}

void Evaluator::check(const Simulator& simulator) {
  const SimulationResult truth = simulator.simulate(table_);
  LOWTIDE_CHECK(peak_bytes() == truth.peak_rounded_bytes && extra_ns() == truth.recompute_ns,
                "the evaluator says peak " + std::to_string(peak_bytes()) + " bytes, extra " +
                    std::to_string(extra_ns()) + " ns; the simulator " +
                    std::to_string(truth.peak_rounded_bytes) + " and " +
                    std::to_string(truth.recompute_ns));
}

std::unique_ptr<Evaluator> make_evaluator(const Simulator& simulator) {
  if (simulator.joint_graph() != nullptr) {
    return std::make_unique<JointEvaluator>(*simulator.joint_graph());
  }
  return std::make_unique<EagerEvaluator>(simulator.problem());
}

}  // namespace lowtide::planner
