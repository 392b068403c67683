// The property: whatever a program does, it is the same program under every budget that is met.
// 300 seeds here, any number by scripts/fuzz programs.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "random/drop_sets.h"
#include "random/judge.h"

namespace lowtide::testing {
namespace {

class RandomPrograms : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

constexpr uint64_t kParts = 6;
#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeedsPerPart = 8;
#else
constexpr uint64_t kSeedsPerPart = 50;
#endif

// In parts, so that ctest may run them side by side.
TEST_P(RandomPrograms, AreTheSameProgramsAtEveryBudget) {
  Tally tally;
  const uint64_t first = GetParam() * kSeedsPerPart + 1;
  for (uint64_t seed = first; seed < first + kSeedsPerPart; ++seed) {
    const std::string finding = judge_seed(seed, tally);
    EXPECT_EQ(finding, "");
  }
  std::printf("%s\n", tally.text().c_str());
  EXPECT_EQ(tally.pairs, static_cast<int64_t>(3 * kSeedsPerPart));
  // 90 % of all, which scripts/fuzz programs asks for; a part scatters around that.
  EXPECT_GE(tally.dropped * 10, tally.pairs * 7);
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomPrograms, ::testing::Range(uint64_t{0}, kParts));

TEST(SmallPrograms, EveryDropSetCostsExactlyWhatItsSimulationSays) {
  at::set_num_threads(1);
  DropSetTally tally;
  for (uint64_t seed = 1; tally.sets < 400; ++seed) {
    ASSERT_LT(seed, 400U);
    const RandomProgram program = repair(generate(seed, 2 + static_cast<int>(seed % 3)));
    EXPECT_EQ(judge_drop_sets(program, 4, tally), "") << to_text(program);
  }
  std::printf("%ld programs, %ld drop sets, %ld ops replayed\n", static_cast<long>(tally.programs),
              static_cast<long>(tally.sets), static_cast<long>(tally.replayed_ops));
  EXPECT_GT(tally.replayed_ops, tally.sets);
}

// Found by 10,000 programs: the fused attention has no second derivative, and this one writes
// nothing.
TEST(Repair, TakesOutMoreThanWritesWhereItMust) {
  const RandomProgram program =
      from_text("474: attention 100 145 99; gradient_of_gradient 184 4 196; attention 215 2 58");
  EXPECT_EQ(refusal_of(repair(program)), "");
}

TEST(ProgramText, IsReadBack) {
  const RandomProgram program = generate(12);
  EXPECT_EQ(to_text(from_text(to_text(program))), to_text(program));
  EXPECT_ANY_THROW((void)from_text("3: no_such_op 1 2 3"));
  EXPECT_ANY_THROW((void)from_text("3: mm 1 2"));
}

// What fails because of two instructions is shrunk to these two.
TEST(Shrinking, KeepsWhatMatters) {
  const RandomProgram program = generate(7, 40);
  const std::string first = program.body[9].kind->name;
  const std::string second = program.body[31].kind->name;
  const auto fails = [&](const RandomProgram& candidate) {
    size_t found = 0;
    for (const Instruction& i : candidate.body) {
      found += found == 0 && i.kind->name == first    ? 1
               : found == 1 && i.kind->name == second ? 1
                                                      : 0;
    }
    return found == 2;
  };
  EXPECT_EQ(shrink(program, fails).body.size(), 2U);
}

}  // namespace
}  // namespace lowtide::testing
