// F51: parts whose recomputation frees nothing (a large batch that becomes a small output) were
// recomputed all the same: slower, and no byte less.
#include "core/error.h"
#include "hard_program.h"

namespace lowtide::testing {
namespace {

// The peak is one op's own working set: no saved tensor matters.
Program large_in_small_out() {
  return training([] {
    const at::Tensor table = parameter({50, 512});
    const at::Tensor tokens = torch::randint(50, {4096}, torch::kLong);
    return Net{{table}, [=](int) {
                 const at::Tensor h = at::embedding(table, tokens).mean(0);
                 return (h.sin() * h).mean();
               }};
  });
}

TEST(Field, F51NoDropWhereNothingIsGained) {
  const Program program = large_in_small_out();
  const Observed plain = run_plain(program, 8);
  SessionOptions options;
  options.store = false;
  const int64_t smallest = smallest_budget(program);
  options.budget = std::to_string(smallest);
  const SessionRun run = run_session(program, 8, options);
  EXPECT_EQ(run.observed, plain);
  ASSERT_TRUE(run.plan.has_value());
  EXPECT_TRUE(run.plan->decisions.empty());
  EXPECT_EQ(run.steps.back().replayed_ops, 0);
}

// Linear layers without activations: each input is saved, and each drop must pay for itself.
TEST(Field, F51EveryDropOfAPlanLowersThePeak) {
  const Program program = training([] {
    const at::Tensor x = torch::randn({256, 96});
    Net net;
    for (int i = 0; i < 8; ++i) net.parameters.push_back(parameter({96, 96}));
    net.loss = [x, w = net.parameters](int) {
      at::Tensor h = x;
      for (const at::Tensor& weight : w) h = h.mm(weight);
      return h.mean();
    };
    return net;
  });
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const SessionRun ample = run_session(program, 7, options);
  const int64_t smallest = smallest_budget(program);
  const int64_t largest = ample.trace->peaks.reserved_bytes + ample.trace->outside_bytes;
  options.budget = std::to_string((smallest + largest) / 2);
  const SessionRun run = run_session(program, 9, options);
  EXPECT_EQ(run.observed, run_plain(program, 9));
  EXPECT_LT(run.steps.back().peak_reserved_bytes, ample.trace->peaks.reserved_bytes);
}

}  // namespace
}  // namespace lowtide::testing
