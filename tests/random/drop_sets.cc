#include "random/drop_sets.h"

#include <exception>
#include <optional>

#include "core/trace_file.h"
#include "planner/simulator.h"

namespace lowtide::testing {
namespace {

constexpr int kSteps = 3;  // the first has no gradients from the step before
constexpr int64_t kAmple = int64_t{1} << 40;

std::vector<StorageId> droppable(const Trace& trace) {
  std::vector<char> saved(trace.storages.size(), 0);
  for (const TraceSave& save : trace.saves) {
    saved[static_cast<size_t>(save.storage)] = 1;
  }
  std::vector<StorageId> all;
  for (size_t i = 0; i < trace.storages.size(); ++i) {
    if (saved[i] != 0 && trace.storages[i].recomputable) {
      all.push_back(static_cast<StorageId>(i));
    }
  }
  return all;
}

// Number `set` in base 3: a digit per storage.
planner::DecisionTable decisions_of(const Trace& trace, const std::vector<StorageId>& storages,
                                    int64_t set) {
  planner::DecisionTable table(trace.storages.size());
  for (const StorageId storage : storages) {
    const int64_t choice = set % 3;
    set /= 3;
    table.action[static_cast<size_t>(storage)] = choice == 0 ? Action::save : Action::drop;
    table.keep[static_cast<size_t>(storage)] = choice != 2;
  }
  return table;
}

std::string name_of(const Plan& plan) {
  std::string text = "drop set {";
  for (const Decision& decision : plan.decisions) {
    text += " " + std::to_string(decision.storage) + (decision.keep_after_recompute ? "" : "*");
  }
  return text + " } (* = rebuilt for each use): ";
}

}  // namespace

std::string judge_drop_sets(const RandomProgram& random_program, int most, DropSetTally& tally) {
  const Program program = runnable(random_program);
  const Observed plain = run_plain(program, kSteps);
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  options.warmup_steps = 1;
  options.probe_steps = 1;
  const std::optional<Trace> trace = run_session(program, kSteps, options).trace;
  if (!trace.has_value()) {
    return "no trace after the probe";
  }
  const std::vector<StorageId> storages = droppable(*trace);
  if (storages.empty() || static_cast<int>(storages.size()) > most) {
    return {};
  }
  ++tally.programs;
  const ScratchDirectory directory;
  write_trace(*trace, directory.path() + "/set.trace.json");
  options.plan_file = directory.path() + "/set.plan.json";
  const planner::Simulator simulator(*trace);
  int64_t sets = 1;
  for (size_t i = 0; i < storages.size(); ++i) {
    sets *= 3;
  }
  for (int64_t set = 0; set < sets; ++set) {
    const planner::DecisionTable table = decisions_of(*trace, storages, set);
    const planner::SimulationResult simulated = simulator.simulate(table);
    Plan plan;
    plan.trace_fingerprint = trace->fingerprint();
    plan.strategy = "every drop set";
    plan.budget_bytes = kAmple;
    plan.decisions = table.to_decisions();
    plan.predicted.peak_requested_bytes = simulated.peak_requested_bytes;
    plan.predicted.peak_reserved_bytes = kAmple;
    plan.measured.verified = true;
    write_plan(plan, options.plan_file);
    SessionRun run;
    try {
      run = run_session(program, kSteps, options);
    } catch (const std::exception& error) {
      return name_of(plan) + error.what();
    }
    const StepReport& last = run.steps.back();
    ++tally.sets;
    tally.replayed_ops += last.replayed_ops;
    if (run.observed != plain) {
      return name_of(plan) + "other bits than the plain program";
    }
    if (last.replayed_ops != simulated.replayed_ops) {
      return name_of(plan) + std::to_string(last.replayed_ops) + " ops replayed, simulated " +
             std::to_string(simulated.replayed_ops);
    }
    if (last.peak_requested_bytes != simulated.peak_requested_bytes) {
      return name_of(plan) + "peak of " + std::to_string(last.peak_requested_bytes) +
             " bytes, simulated " + std::to_string(simulated.peak_requested_bytes);
    }
  }
  return {};
}

}  // namespace lowtide::testing
