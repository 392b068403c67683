// Six faults that a recomputing runtime may have: each is found by the random programs' judge or by
// executing every drop set of small programs; without a fault the same programs are right.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "mutants/planted.h"
#include "random/drop_sets.h"
#include "random/judge.h"

namespace lowtide::testing {
namespace {

constexpr uint64_t kSeeds = 60;
constexpr uint64_t kSmallSeeds = 60;
constexpr int kMostDroppable = 3;

class PlantedFaults : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { planted_fault() = Fault::none; }
};

// The first seed whose finding the judge reports; 0 = none.
template <typename Judge>
uint64_t found_at(Fault fault, uint64_t seeds, const Judge& judge_one) {
  planted_fault() = fault;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string finding = judge_one(seed);
    if (!finding.empty()) {
      std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed), finding.c_str());
      return seed;
    }
  }
  return 0;
}

uint64_t found_by_programs(Fault fault, uint64_t seeds = kSeeds) {
  return found_at(fault, seeds, [](uint64_t seed) {
    Tally tally;
    const RandomProgram drawn = generate(seed);
    const std::string finding =
        refusal_of(drawn).empty() ? std::string() : judge_refusal(drawn, tally);
    return finding.empty() ? judge(repair(drawn), tally) : finding;
  });
}

uint64_t found_by_drop_sets(Fault fault, uint64_t seeds = kSmallSeeds) {
  return found_at(fault, seeds, [](uint64_t seed) {
    DropSetTally tally;
    return judge_drop_sets(repair(generate(seed, 2)), kMostDroppable, tally);
  });
}

TEST_F(PlantedFaults, WithoutOneTheProgramsAreRight) {
  EXPECT_EQ(found_by_programs(Fault::none, 10), 0U);
  EXPECT_EQ(found_by_drop_sets(Fault::none, 10), 0U);
}

TEST_F(PlantedFaults, NoRngRestore) { EXPECT_GT(found_by_programs(Fault::no_rng_restore), 0U); }

TEST_F(PlantedFaults, NoGradModeRestore) {
  EXPECT_GT(found_by_programs(Fault::no_grad_mode_restore), 0U);
}

TEST_F(PlantedFaults, BatchNormStatisticsNotCloned) {
  EXPECT_GT(found_by_programs(Fault::batch_norm_not_cloned), 0U);
}

TEST_F(PlantedFaults, NoVersionCheck) { EXPECT_GT(found_by_programs(Fault::no_version_check), 0U); }

TEST_F(PlantedFaults, KeepBitIgnored) {
  EXPECT_GT(found_by_drop_sets(Fault::keep_bit_ignored), 0U);
}

TEST_F(PlantedFaults, WorkspaceDropped) {
  EXPECT_GT(found_by_drop_sets(Fault::workspace_dropped), 0U);
}

}  // namespace
}  // namespace lowtide::testing
