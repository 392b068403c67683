// F50: "only reduced to 86 GiB": a warning, then out of memory. The answer is a number, in time.
#include "core/error.h"
#include "hard_program.h"

namespace lowtide::testing {
namespace {

Program wide_layers() {
  return training([] {
    const at::Tensor x = torch::randn({512, 96});
    const at::Tensor w = parameter({96, 256});
    const at::Tensor v = parameter({256, 96});
    return Net{{w, v}, [=](int) {
                 const at::Tensor h = at::gelu(x.mm(w)).tanh().mm(v);
                 return at::gelu(h.mm(w)).exp().mean();
               }};
  });
}

TEST(Field, F50StoredTraceRefusesBeforeTheFirstStepWithAReachableBudget) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = "none";
  const Observed plain = run_plain(wide_layers(), 9);
  EXPECT_EQ(run_session(wide_layers(), 9, options).observed, plain);
  options.budget = "1MiB";
  int64_t smallest = 0;
  int steps_run = 0;
  try {
    Session session(options);
    const StepFunction step_function = wide_layers()();
    const Step step = session.step();
    ++steps_run;
    step_function(1);
  } catch (const OutOfBudget& error) {
    smallest = error.smallest_reachable_bytes();
  }
  EXPECT_EQ(steps_run, 0);
  ASSERT_GT(smallest, 1024 * 1024);
  options.budget = std::to_string(smallest);
  const SessionRun run = run_session(wide_layers(), 9, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.stats.steps_over_budget, 0);
}

}  // namespace
}  // namespace lowtide::testing
