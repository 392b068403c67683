// F33: experts with exactly tied scores; a recomputed choice may be another one.
#include "hard_program.h"

namespace lowtide::testing {
namespace {

TEST(Field, F33RoutingOfTiedScores) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::ones({128, 48});
              const at::Tensor router = torch::zeros({48, 4}).requires_grad_();
              Net net{{router}, nullptr};
              for (int i = 0; i < 4; ++i) net.parameters.push_back(parameter({48, 48}));
              net.loss = [x, p = net.parameters](int) {
                const at::Tensor scores = x.mm(p[0]).softmax(1);
                const auto [weight, chosen] = scores.topk(2, 1);
                at::Tensor out = torch::zeros({128, 48});
                for (int e = 0; e < 4; ++e) {
                  const at::Tensor where = (chosen == e).nonzero();
                  const at::Tensor rows = where.select(1, 0);
                  const at::Tensor gate = weight.index({rows, where.select(1, 1)}).unsqueeze(1);
                  out = out.index_add(0, rows, at::silu(x.index({rows}).mm(p[e + 1])) * gate);
                }
                return out.pow(2).mean();
              };
              return net;
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
