// The default strategy against brute force on tiny graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/error.h"
#include "planner/instance.h"
#include "planner/planner.h"
#include "planner/problem.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "support/cpu_seconds.h"
#include "support/synthetic_instance.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

// Least extra time for each reachable peak, over all drop sets and, with duplicates, keep bits.
std::map<int64_t, int64_t> brute_force(const Simulator& simulator, bool duplicates) {
  const auto& candidates = simulator.problem().candidates();
  const int64_t choices = duplicates ? 3 : 2;
  int64_t combinations = 1;
  for (size_t i = 0; i < candidates.size(); ++i) combinations *= choices;
  std::map<int64_t, int64_t> best;
  DecisionTable table(simulator.trace().storages.size());
  for (int64_t code = 0; code < combinations; ++code) {
    int64_t rest = code;
    for (const StorageId s : candidates) {
      table.action[static_cast<size_t>(s)] = rest % choices == 0 ? Action::save : Action::drop;
      table.keep[static_cast<size_t>(s)] = rest % choices != 2;
      rest /= choices;
    }
    const SimulationResult result = simulator.simulate(table);
    const auto [it, fresh] = best.emplace(result.peak_rounded_bytes, result.recompute_ns);
    if (!fresh) it->second = std::min(it->second, result.recompute_ns);
  }
  int64_t least = INT64_MAX;  // a lower peak will do too
  for (auto& [peak, ns] : best) ns = least = std::min(least, ns);
  return best;
}

void expect_optimal(const Trace& trace, bool duplicates) {
  const Simulator simulator(trace);
  const auto best = brute_force(simulator, duplicates);
  Archive archive;
  explore(duplicates ? "lowtide" : "lowtide:single", simulator, archive);
  for (const auto& [peak, ns] : best) {
    const Archive::Entry* entry = archive.cheapest(peak);
    ASSERT_NE(entry, nullptr) << "peak " << peak << " was not reached";
    ASSERT_EQ(entry->recompute_ns, ns) << "at peak " << peak;
  }
}

TEST(Lowtide, IsOptimalOnTinyInstancesInBothPlanSpaces) {
  int instances = 0;
  for (uint64_t seed = 1; instances < 60; ++seed) {
    const Trace trace = instance_from_json(testing::random_instance(seed, 9));
    const size_t candidates = Problem(trace).candidates().size();
    if (candidates < 3 || candidates > 6) continue;
    ++instances;
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const bool duplicates : {false, true}) {
      expect_optimal(trace, duplicates);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Lowtide, IsTheSameEachTime) {
  const Trace trace = instance_from_json(testing::random_instance(3, 14));
  const Simulator simulator(trace);
  Archive first, second;
  explore("lowtide", simulator, first);
  explore("lowtide", simulator, second);
  ASSERT_EQ(first.entries().size(), second.entries().size());
  for (auto a = first.entries().begin(), b = second.entries().begin(); a != first.entries().end();
       ++a, ++b) {
    EXPECT_EQ(a->first, b->first);
    EXPECT_EQ(a->second.decisions, b->second.decisions);
  }
}

TEST(Lowtide, ArgumentsAreNamed) {
  const Trace trace = testing::chain_trace(3);
  const Simulator simulator(trace);
  Archive archive;
  for (const char* text : {"lowtide:clever", "lowtide:peak=", "lowtide:peak=-1", "lowtide:peak=9x",
                           "lowtide:seconds=1.5"}) {
    EXPECT_THROW(explore(text, simulator, archive), InvalidInput) << text;
  }
  EXPECT_NO_THROW(explore("lowtide:single+peak=100", simulator, archive));
}

TEST(Lowtide, StopsAtItsTimeLimitWithWhatItHas) {
  const Trace trace = testing::gpt_trace({.layers = 6});
  const Simulator simulator(trace);
  Archive archive;
  const double begin = testing::cpu_seconds();
  explore("lowtide:seconds=0", simulator, archive);
  const double cpu_seconds = testing::cpu_seconds() - begin;
  EXPECT_LT(cpu_seconds, 0.7);  // the full search takes twice as long, and this next to nothing
  ASSERT_FALSE(archive.entries().empty());
  EXPECT_EQ(archive.entries().rbegin()->first, trace.peaks.rounded_bytes);
}

TEST(Lowtide, OnEagerProgramsIsNeverWorseThanGreedy) {
  const Trace trace = testing::gpt_trace({.layers = 2, .sequence = 64, .width = 64});
  const Simulator simulator(trace);
  Archive greedy, lowtide;
  explore("greedy", simulator, greedy);
  explore("lowtide", simulator, lowtide);
  EXPECT_LE(lowtide.entries().begin()->first, greedy.entries().begin()->first);
  for (const auto& [peak, entry] : greedy.entries()) {
    EXPECT_LE(lowtide.cheapest(peak)->recompute_ns, entry.recompute_ns) << peak;
  }
}

}  // namespace
}  // namespace lowtide::planner
