// Graphs used in unusual ways: own functions, several backwards, hooks, errors, odd modes.
#include "hard_program.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <random>
#include <stdexcept>

namespace lowtide::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Reads its saved variables twice and modifies what it got.
struct SaysItTwice : public torch::autograd::Function<SaysItTwice> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor y = x.mm(w);
    at::Tensor z = y.exp();
    ctx->save_for_backward({x, w, y, z});
    return z.mul_(2);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor w = ctx->get_saved_variables()[1];
    const at::Tensor z = ctx->get_saved_variables()[3];
    const at::Tensor g = gradients[0] * z + ctx->get_saved_variables()[2] * 0.001;
    return {g.mm(w.t()), x.t().mm(g)};
  }
};

// Keeps a tensor out of autograd's sight, where no memory planner can take it.
struct KeepsItPrivate : public torch::autograd::Function<KeepsItPrivate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const at::Tensor half = x * 0.5;
    ctx->saved_data["half"] = half;
    ctx->saved_data["x"] = x.detach();
    return half.sin();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor half = ctx->saved_data["half"].toTensor();
    return {gradients[0] * half.cos() * 0.5 + ctx->saved_data["x"].toTensor() * 1e-3};
  }
};

TEST(HardGraph, OwnFunctionThatReadsItsSavesTwice) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96}, 0.02);
              return Net{{w}, [=](int) {
                           const at::Tensor h = SaysItTwice::apply((x.mm(w)).tanh(), w);
                           return (SaysItTwice::apply(h * 0.1, w) * h).mean();
                         }};
            })),
            "");
}

TEST(HardGraph, OwnFunctionThatKeepsTensorsPrivate) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           const at::Tensor h = KeepsItPrivate::apply(x.mm(w).exp());
                           return KeepsItPrivate::apply(h.mm(w).sigmoid()).pow(2).mean();
                         }};
            })),
            "");
}

TEST(HardGraph, FourBackwardsThroughARetainedGraph) {
  const Program program = []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      const at::Tensor h = at::dropout(x.mm(net.parameters[0]).exp(), 0.2, true);
      const at::Tensor loss = (h.sin() * h).mean();
      for (int i = 0; i < 4; ++i) {
        loss.backward({}, /*retain_graph=*/true);
      }
      descend(net);
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(HardGraph, SecondAndThirdOrderGradients) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96}).requires_grad_();
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           const at::Tensor y = (x.mm(w).tanh().mm(w).sin() * x).sum();
                           const at::Tensor first =
                               torch::autograd::grad({y}, {x}, {}, true, true)[0];
                           const at::Tensor second =
                               torch::autograd::grad({first.pow(2).sum()}, {x}, {}, true, true)[0];
                           return y * 1e-3 + first.exp().mean() + second.pow(2).mean();
                         }};
            })),
            "");
}

TEST(HardGraph, PartialGradientsThenTheRest) {
  const Program program = []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96}), parameter({96, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      const at::Tensor h = x.mm(net.parameters[0]).exp();
      const at::Tensor loss = (h.sin().mm(net.parameters[1]).sigmoid() * h).mean();
      const at::Tensor at_h = torch::autograd::grad({loss}, {h}, {}, true)[0];
      const at::Tensor at_w = torch::autograd::grad({loss}, {net.parameters[1]}, {}, true)[0];
      (loss + (at_h * h).sum()).backward();
      descend(net);
      std::vector<at::Tensor> seen = observed(net, loss);
      seen.push_back(at_w);
      return seen;
    };
  };
  EXPECT_EQ(differences(program), "");
}

// Discriminator and generator: two optimizers, a graph that lives through another's step.
TEST(HardGraph, TwoModelsWithAnOptimizerStepBetweenBackwards) {
  const Program program = []() -> StepFunction {
    begin_program();
    torch::nn::Sequential generator(torch::nn::Linear(32, 96), torch::nn::BatchNorm1d(96),
                                    torch::nn::ReLU(), torch::nn::Linear(96, 96));
    torch::nn::Sequential critic(torch::nn::Linear(96, 96), torch::nn::LeakyReLU(),
                                 torch::nn::Dropout(0.2), torch::nn::Linear(96, 1));
    auto first = std::make_shared<torch::optim::Adam>(critic->parameters(), 1e-3);
    auto second = std::make_shared<torch::optim::RMSprop>(generator->parameters(), 1e-3);
    return [=](int) mutable {
      const at::Tensor real = torch::randn({64, 96});
      const at::Tensor fake = generator->forward(torch::randn({64, 32}));
      first->zero_grad();
      const at::Tensor d = torch::softplus(critic->forward(fake.detach())).mean() +
                           torch::softplus(-critic->forward(real)).mean();
      d.backward();
      first->step();
      second->zero_grad();
      const at::Tensor g = torch::softplus(-critic->forward(fake)).mean();
      g.backward();
      second->step();
      std::vector<at::Tensor> seen{d.detach(), g.detach()};
      for (const auto& module : {generator, critic}) {
        for (const at::Tensor& p : module->parameters()) {
          seen.push_back(p.detach().clone());
        }
        for (const at::Tensor& b : module->buffers()) {
          seen.push_back(b.clone());
        }
      }
      return seen;
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(HardGraph, AccumulationEvaluationAndAnAbandonedGraph) {
  const Program program = []() -> StepFunction {
    begin_program();
    torch::nn::Sequential model(torch::nn::Linear(96, 96), torch::nn::BatchNorm1d(96),
                                torch::nn::Dropout(0.3), torch::nn::Linear(96, 96));
    const Net net{model->parameters(), nullptr, model->buffers()};
    const at::Tensor x = torch::randn({64, 96});
    return [=](int step) mutable {
      forget_gradients(net);
      at::Tensor total = torch::zeros({});
      for (int micro = 0; micro < 3; ++micro) {
        const at::Tensor loss = model->forward(x + micro).pow(2).mean();
        const at::Tensor never = model->forward(x).exp().mean();
        loss.backward();
        total = total + loss.detach();
      }
      if (step % 3 == 0) {
        const torch::NoGradGuard no_grad;
        model->eval();
        total = total + model->forward(x).sum();
        model->train();
      }
      descend(net);
      return observed(net, total);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(HardGraph, HooksThatChangeGradientsAndReadActivations) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{
                  {w}, [=](int) {
                    const at::Tensor h = x.mm(w).exp();
                    const at::Tensor y = (h * h).sin();
                    const at::Tensor seen = h.detach();
                    h.register_hook([seen](const at::Tensor& g) { return g * seen; });
                    y.register_hook([](const at::Tensor& g) { return g.clamp(-1e-3, 1e-3); });
                    y.retain_grad();
                    return (y * h).mean();
                  }};
            })),
            "");
}

// The optimizer runs inside backward; the weight's old value is still part of recipes.
class StepsAtOnce : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& variable) override {
    const torch::NoGradGuard no_grad;
    at::Tensor p = variable;
    p.sub_(p.grad(), 0.05);
    p.mutable_grad() = at::Tensor();
  }
};

TEST(HardGraph, PostAccumulateHooksThatStep) {
  const Program program = []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96}), parameter({96}), parameter({96})}, nullptr};
    for (const at::Tensor& p : net.parameters) {
      torch::autograd::impl::set_post_acc_grad_hooks(p, std::make_unique<StepsAtOnce>());
    }
    return [=](int) {
      const at::Tensor h = (x.mm(net.parameters[0]) + net.parameters[1]).exp();
      const at::Tensor loss = ((h * 0.1 + net.parameters[2]).sin() * h).mean();
      loss.backward();
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(HardGraph, ControlFlowByValueAndRandomlySkippedLayers) {
  const Program program = []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    Net net;
    for (int i = 0; i < 6; ++i) net.parameters.push_back(parameter({96, 96}));
    auto random = std::make_shared<std::mt19937>(3);
    return [=](int) {
      forget_gradients(net);
      at::Tensor h = x;
      for (const at::Tensor& w : net.parameters) {
        if ((*random)() % 2 == 0) {
          h = h + h.mm(w).tanh();
        }
      }
      const at::Tensor loss = h.mean().item<float>() > 0 ? h.exp().mean() : (h * h.sin()).mean();
      if (loss.requires_grad()) {
        loss.backward();
      }
      descend(net);
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program, 14), "");
}

TEST(HardGraph, TiedWeightsAndALowRankAdapterOnAFrozenBase) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor frozen = parameter({96, 96}).detach();
              const at::Tensor a = parameter({96, 4});
              const at::Tensor b = parameter({4, 96});
              const at::Tensor tied = parameter({96, 96});
              return Net{{a, b, tied}, [=](int) {
                           at::Tensor h = x.mm(frozen) + x.mm(a).mm(b);
                           h = at::gelu(h.mm(tied));
                           h = (h.mm(frozen) + h.mm(a).mm(b)).mm(tied.t());
                           return h.log_softmax(1).exp().pow(2).sum();
                         }};
            })),
            "");
}

// Inference mode hides ops from autograd, not from memory: h is overwritten, y's recipe reads it.
TEST(HardGraph, WritesUnderInferenceMode) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor scale = torch::rand({64, 96});
              return Net{{w},
                         [=](int step) {
                           at::Tensor h = x * 2;
                           const at::Tensor y = (x.mm(w) + scale).exp();
                           const at::Tensor z = (h + 1).sin();
                           {
                             const c10::InferenceMode inference;
                             const at::Tensor statistics = y.exp() + h;
                             h.zero_();
                             scale.mul_(1 + 0.01 * step);
                             scale.add_(statistics.mean());
                           }
                           return (y * z * y).mean();
                         },
                         {scale}};
            })),
            "");
}

// The same below autograd, where no version counter moves.
TEST(HardGraph, WritesBelowAutograd) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x * 2;
                           const at::Tensor z = (h + 1).sin();
                           const at::Tensor y = x.mm(w).exp();
                           {
                             const at::AutoDispatchBelowADInplaceOrView below;
                             h.fill_(7);
                           }
                           return (y * z * y).mean() + h.mean();
                         }};
            })),
            "");
}

TEST(HardGraph, TwoIntraOpThreads) {
  const Program program = []() -> StepFunction {
    begin_program();
    at::set_num_threads(2);
    const at::Tensor x = torch::randn({512, 128});
    const Net net{{parameter({128, 256}), parameter({256, 64})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      const at::Tensor h = at::dropout(x.mm(net.parameters[0]).tanh(), 0.1, true);
      const at::Tensor loss = h.exp().mm(net.parameters[1]).softmax(1).pow(2).mean();
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
  const Observed plain = run_plain(program, 3);
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(2560 * 1024);
  const SessionRun run = run_session(program, 3, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_GT(run.stats.evictions, 0);
  at::set_num_threads(1);
}

TEST(HardGraph, VeryLongChain) {
  const Program program = []() -> StepFunction {
    begin_program();
    const Net net{{parameter({64, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      at::Tensor h = net.parameters[0];
      for (int i = 0; i < 300; ++i) {
        h = i % 3 == 0 ? h.sin() : h * 1.01;
      }
      const at::Tensor loss = h.pow(2).mean();
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
  const Observed plain = run_plain(program, 3);
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(1536 * 1024);
  const SessionRun run = run_session(program, 3, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_GT(run.stats.evictions, 0);
}

// A graph may live on between two steps, where nothing is captured: the bias is overwritten there.
at::Tensor gradient_over_two_steps(Session* session, bool write_through_data) {
  begin_program();
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  const at::Tensor bias = torch::randn({64, 96});
  at::Tensor loss;
  {
    const std::optional<Step> step = session ? std::optional<Step>(session->step()) : std::nullopt;
    const at::Tensor y = (x.mm(w) + bias).exp();
    loss = (y * y.sin()).mean() + torch::zeros({64, 96}).sum();
  }
  (write_through_data ? bias.data() : bias).zero_();
  {
    const std::optional<Step> step = session ? std::optional<Step>(session->step()) : std::nullopt;
    loss.backward();
  }
  return w.grad();
}

SessionOptions unlimited() {
  SessionOptions options;
  options.budget = "none";
  options.store = false;
  return options;
}

TEST(HardGraph, InputsWrittenBetweenStepsWhileAGraphLives) {
  for (const char* front_end : {"dispatch_key", "record_function"}) {
    for (const bool through_data : {false, true}) {
      const at::Tensor plain = gradient_over_two_steps(nullptr, through_data);
      setenv("LOWTIDE_FRONT_END", front_end, 1);
      Session session(unlimited());
      const Chaos chaos(1, 7);
      EXPECT_TRUE(at::equal(gradient_over_two_steps(&session, through_data), plain))
          << front_end << through_data;
      EXPECT_GT(session.stats().replayed_ops, 0);
    }
  }
  unsetenv("LOWTIDE_FRONT_END");
}

TEST(HardGraph, AbandonedGraphsAndErrorsLeaveNoBytes) {
  Session session(unlimited());
  begin_program();
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  const int64_t base = bytes_in_use();
  for (int i = 0; i < 12; ++i) {
    {
      const Step step = session.step();
      const at::Tensor abandoned = x.mm(w).exp().sin().mean();
    }
    EXPECT_EQ(bytes_in_use(), base);
    EXPECT_THROW(
        {
          const Step step = session.step();
          const at::Tensor h = x.mm(w).exp() * 2;
          if (i % 2 == 0) throw std::runtime_error("the user's own");
          h.mm(x);  // shapes do not fit
        },
        std::exception);
    EXPECT_EQ(bytes_in_use(), base);
  }
  const Step step = session.step();
  x.mm(w).exp().mean().backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST(HardGraph, OutOfMemoryInsideAStepLeavesTheSessionUsable) {
  SessionOptions options = unlimited();
  options.budget = std::to_string(4 * 1024 * 1024);
  Session session(options);
  begin_program();
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  const int64_t base = bytes_in_use();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(
        {
          const Step step = session.step();
          const at::Tensor h = x.mm(w).exp();
          const at::Tensor big = torch::zeros({2048, 1024});
        },
        c10::OutOfMemoryError);
    EXPECT_EQ(bytes_in_use(), base);
    {
      const Step step = session.step();
      x.mm(w).exp().mean().backward();
      EXPECT_TRUE(w.grad().isfinite().all().item<bool>());
      w.mutable_grad() = at::Tensor();
    }
    EXPECT_EQ(bytes_in_use(), base);
  }
}

std::string error_of(const std::function<void()>& program) {
  try {
    program();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(HardGraph, ChangedSavedTensorsGiveAutogradsOwnError) {
  begin_program();
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  const auto output_changed = [&] {
    at::Tensor h = x.mm(w).exp();
    const at::Tensor loss = h.sum();
    h.add_(1);
    loss.backward();
  };
  const auto input_changed = [&] {
    at::Tensor h = x * 3;
    const at::Tensor loss = h.mm(w).sum();
    h.select(0, 2).mul_(10);
    loss.backward();
  };
  const auto leaf_changed = [&] {
    const at::Tensor v = parameter({96, 96});
    const at::Tensor loss = (v * v).sum();
    const torch::NoGradGuard no_grad;
    v.add_(1);
    loss.backward();
  };
  for (const char* front_end : {"dispatch_key", "record_function"}) {
    setenv("LOWTIDE_FRONT_END", front_end, 1);
    for (const std::function<void()>& program :
         std::vector<std::function<void()>>{output_changed, input_changed, leaf_changed}) {
      const std::string plain = error_of(program);
      EXPECT_NE(plain.find("modified by an inplace operation"), std::string::npos) << plain;
      Session session(unlimited());
      const Step step = session.step();
      EXPECT_EQ(error_of(program), plain);
    }
  }
  unsetenv("LOWTIDE_FRONT_END");
}

}  // namespace
}  // namespace lowtide::testing
