// F42: the first step has neither gradients nor optimizer state; later ones peak higher.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

Program adam_with_accumulation() {
  return []() -> StepFunction {
    begin_program();
    torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::GELU(),
                                torch::nn::Linear(256, 256), torch::nn::GELU(),
                                torch::nn::Linear(256, 64));
    auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-3);
    const at::Tensor x = torch::randn({1024, 64});
    return [=](int) mutable {
      at::Tensor total = torch::zeros({});
      for (int micro = 0; micro < 2; ++micro) {
        const at::Tensor loss = model->forward(x).pow(2).mean();
        loss.backward();
        total = total + loss.detach();
      }
      optimizer->step();
      optimizer->zero_grad(/*set_to_none=*/true);
      std::vector<at::Tensor> seen{total};
      for (const at::Tensor& p : model->parameters()) seen.push_back(p.detach().clone());
      return seen;
    };
  };
}

TEST(Field, F42BudgetBetweenTheFirstAndTheSecondPeakHolds) {
  const Program program = adam_with_accumulation();
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const SessionRun ample = run_session(program, 7, options);
  const int64_t first = ample.steps[0].peak_reserved_bytes;
  const int64_t second = ample.steps[1].peak_reserved_bytes;
  ASSERT_LT(first, second);
  // The model and the batch are made before the session: outside its allocator, inside the budget.
  const int64_t outside = ample.trace->outside_bytes;
  options.budget = std::to_string((first + second) / 2 + outside);
  const SessionRun run = run_session(program, 12, options);
  EXPECT_EQ(run.observed, run_plain(program, 12));
  EXPECT_EQ(run.stats.steps_over_budget, 0);
  EXPECT_GT(run.stats.replayed_ops, 0);
}

}  // namespace
}  // namespace lowtide::testing
