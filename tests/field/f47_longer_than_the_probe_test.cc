// F47: a plan made for one sequence length meets longer and shorter ones.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F47LengthsThatTheProbeNeverSaw) {
  const Program program = training([] {
    const at::Tensor table = parameter({64, 48});
    const at::Tensor w = parameter({48, 48});
    return Net{{table, w}, [=](int step) {
                 const int64_t length = step <= 8 ? 128 : step % 2 == 0 ? 256 : 64;
                 const at::Tensor tokens = torch::randint(64, {4, length}, torch::kLong);
                 at::Tensor h = at::embedding(table, tokens);
                 for (int i = 0; i < 3; ++i) {
                   h = h + at::gelu(h.matmul(w)).tanh();
                 }
                 return h.softmax(2).pow(2).mean();
               }};
  });
  const int steps = 16;
  const Observed plain = run_plain(program, steps);
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const SessionRun ample = run_session(program, steps, options);
  EXPECT_EQ(ample.observed, plain);
  options.budget = std::to_string(ample.stats.peak_reserved_bytes * 6 / 10);
  const SessionRun run = run_session(program, steps, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.stats.steps_over_budget, 0);
  EXPECT_GT(run.stats.replayed_ops, 0);
}

}  // namespace
}  // namespace lowtide::testing
