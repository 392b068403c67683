// What a user of the runtime writes: a session around an ordinary training loop.
#include <lowtide/lowtide.h>
#include <torch/torch.h>

#include <iostream>

#ifndef NDEBUG
#error "torch's layouts need NDEBUG: Lowtide's targets must bring it along"
#endif

int main() {
  torch::manual_seed(1);
  torch::nn::Linear model(8, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  const torch::Tensor inputs = torch::randn({16, 8});
  const torch::Tensor targets = inputs.sum(1, true);

  lowtide::Session session({.budget = "none", .store = false});
  double first = 0, last = 0;
  for (int i = 0; i < 3; ++i) {
    auto step = session.step();
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(inputs), targets);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (i == 0) first = last;
  }
  std::cout << "steps: " << session.stats().steps << (last < first ? ", loss fell" : ", loss rose")
            << "\n";
  return last < first ? 0 : 1;
}
