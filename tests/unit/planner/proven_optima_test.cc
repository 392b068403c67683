// The default strategy against what is proven of whole models, by HiGHS. Searches of seconds that
// checks slow tenfold: on small graphs the same code runs under them (lowtide_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/instance.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "support/synthetic_instance.h"

namespace lowtide::planner {
namespace {

// Gap to the proven optimum of whole models, planned for that budget alone.
TEST(Lowtide, IsNearTheProvenOptimaOfModels) {
  double sum = 0;
  double worst = 0;
  const auto optima = testing::shared_optima();
  for (const testing::Optimum& row : optima) {
    const Trace trace = read_instance(testing::shared_instances() / (row.instance + ".json"));
    const Simulator simulator(trace);
    Archive archive;
    explore("lowtide:single+peak=" + std::to_string(row.budget_bytes), simulator, archive);
    const Archive::Entry* entry = archive.cheapest(row.budget_bytes);
    ASSERT_NE(entry, nullptr) << row.instance << " " << row.budget_bytes;
    EXPECT_GE(entry->recompute_ns, row.proven_lower_bound_ns) << "cheaper than the possible";
    const double gap =
        static_cast<double>(entry->recompute_ns - row.extra_ns) / static_cast<double>(row.extra_ns);
    sum += gap;
    worst = std::max(worst, gap);
  }
  if (optima.empty()) return;
  EXPECT_LE(sum / static_cast<double>(optima.size()), 0.003);
  EXPECT_LE(worst, 0.01);
}

}  // namespace
}  // namespace lowtide::planner
