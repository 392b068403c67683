#include "tiny_problems.h"

#include <utility>

#include "planner/instance.h"
#include "support/synthetic_instance.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

std::vector<StorageId> candidates_of(const Trace& trace) {
  std::vector<StorageId> candidates;
  std::vector<char> saved(trace.storages.size());
  for (const TraceSave& save : trace.saves) saved[static_cast<size_t>(save.storage)] = 1;
  for (size_t s = 0; s < trace.storages.size(); ++s) {
    if (saved[s] != 0 && trace.storages[s].recomputable) {
      candidates.push_back(static_cast<StorageId>(s));
    }
  }
  return candidates;
}

}  // namespace

std::vector<TinyProblem> tiny_problems(int count, size_t most_candidates) {
  std::vector<TinyProblem> problems;
  for (const bool joint : {false, true}) {
    int found = 0;
    for (uint64_t seed = 1; found < count / 2; ++seed) {
      const int ops = 5 + static_cast<int>(seed % 8);
      TinyProblem problem{seed,
                          joint ? instance_from_json(testing::random_instance(seed, ops))
                                : testing::random_trace(seed, ops),
                          {}};
      // Some ops are cheaper or dearer to repeat than to run.
      for (size_t o = 0; !joint && o < problem.trace.ops.size(); o += 3) {
        problem.trace.ops[o].replay_ns = 1 + static_cast<int64_t>(seed * 31 + o * 17) % 120;
      }
      problem.candidates = candidates_of(problem.trace);
      if (problem.candidates.size() < 2 || problem.candidates.size() > most_candidates) continue;
      problems.push_back(std::move(problem));
      ++found;
    }
  }
  return problems;
}

void for_each_plan(const TinyProblem& problem, Space space,
                   const std::function<void(const DecisionTable&)>& visit) {
  const int64_t choices = space == Space::general ? 3 : 2;
  int64_t plans = 1;
  for (size_t i = 0; i < problem.candidates.size(); ++i) plans *= choices;
  DecisionTable table(problem.trace.storages.size());
  for (int64_t code = 0; code < plans; ++code) {
    int64_t rest = code;
    for (const StorageId s : problem.candidates) {
      table.action[static_cast<size_t>(s)] = rest % choices == 0 ? Action::save : Action::drop;
      table.keep[static_cast<size_t>(s)] = rest % choices != 2;
      rest /= choices;
    }
    visit(table);
  }
}

Optima optima(const TinyProblem& problem, Space space) {
  const Simulator simulator(problem.trace);
  Optima least;
  for_each_plan(problem, space, [&](const DecisionTable& table) {
    const SimulationResult result = simulator.simulate(table);
    const auto [it, fresh] = least.emplace(result.peak_rounded_bytes, result.recompute_ns);
    if (!fresh) it->second = std::min(it->second, result.recompute_ns);
  });
  int64_t best = INT64_MAX;
  for (auto it = least.begin(); it != least.end();) {
    it = it->second >= best ? least.erase(it) : (best = it->second, std::next(it));
  }
  return least;
}

}  // namespace lowtide::planner
