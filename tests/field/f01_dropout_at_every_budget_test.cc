// F01: a random state that is not restored trains another network, without an error.
#include "hard_program.h"
#include "runtime/variant.h"

namespace lowtide::testing {
namespace {

TEST(Field, F01DropoutAtEveryBudget) {
  const Program program = training([] {
    const at::Tensor x = torch::randn({512, 96});
    Net net;
    for (int i = 0; i < 4; ++i) net.parameters.push_back(parameter({96, 96}));
    net.loss = [x, w = net.parameters](int) {
      at::Tensor h = x;
      for (const at::Tensor& weight : w) {
        h = at::dropout(at::gelu(h.mm(weight)), 0.5, true);
      }
      return h.pow(2).mean();
    };
    return net;
  });
  const Observed plain = run_plain(program, 20);
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const SessionRun ample = run_session(program, 20, options);
  EXPECT_EQ(ample.observed, plain);
  const int64_t largest = ample.stats.peak_reserved_bytes;
  const int64_t smallest = smallest_budget(program) + 256 * 1024;
  ASSERT_LT(smallest, largest);
  for (int i = 0; i <= 4; ++i) {
    options.budget = std::to_string(smallest + (largest - smallest) * i / 4);
    const SessionRun run = run_session(program, 20, options);
    EXPECT_EQ(run.observed, plain) << options.budget;
    EXPECT_EQ(run.stats.steps_over_budget, 0) << options.budget;
  }
}

}  // namespace
}  // namespace lowtide::testing
