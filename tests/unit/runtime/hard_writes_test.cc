// Writes that recompute must survive: in place, through views, into buffers, behind torch's back.
#include "hard_program.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace lowtide::testing {
namespace {

TEST(HardWrites, BiasAddedInPlace) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor b = parameter({96});
              const at::Tensor w2 = parameter({96, 96});
              return Net{{w, b, w2},
                         [=](int) { return x.mm(w).add_(b).tanh().mm(w2).add_(b).pow(2).mean(); }};
            })),
            "");
}

TEST(HardWrites, ActivationsInPlaceSavedAsOutputs) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor v = parameter({96, 96});
              return Net{{w, v}, [=](int) {
                           at::Tensor h = x.mm(w);
                           h.relu_();
                           h = h.mm(v).sigmoid_();
                           h = h.mm(w);
                           at::selu_(h);
                           h = h.mm(v).tanh_();
                           h = h.mm(w);
                           at::leaky_relu_(h, 0.3);
                           h = h.mm(v);
                           at::hardtanh_(h).exp_();
                           return h.mean();
                         }};
            })),
            "");
}

TEST(HardWrites, ChainOfWritesToOneStorage) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w);
                           h.add_(1.0).mul_(0.5).sub_(x, 0.25).sigmoid_();
                           at::Tensor g = h.mm(w);
                           g.mul_(h.detach()).clamp_(-1, 1).add_(h).tanh_();
                           return (g * g.exp()).mean();
                         }};
            })),
            "");
}

TEST(HardWrites, SlicesWrittenInPlace) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w);
                           h.slice(0, 0, 16).copy_(x.slice(0, 16, 32));
                           h.narrow(1, 8, 32).mul_(2.0);
                           h.select(1, 3).zero_();
                           h.slice(0, 32, 64).sigmoid_();
                           const at::Tensor g = h.mm(w);
                           g.t().slice(0, 0, 40).tanh_();
                           return (g.exp() * h).mean();
                         }};
            })),
            "");
}

TEST(HardWrites, ViewsOfViewsOfViews) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w).view({8, 8, 96}).permute({1, 2, 0});
                           const at::Tensor a = h.slice(1, 0, 48).transpose(0, 2);
                           const at::Tensor b = h.slice(1, 48, 96).unsqueeze(0).squeeze(0);
                           a.add_(0.5);
                           const at::Tensor e = a.exp() * b.transpose(0, 2).sigmoid();
                           const at::Tensor s = e.as_strided({16, 32}, {40, 1}, 5);
                           return (s.cos() * s).sum() + e.unfold(2, 4, 2).pow(2).mean();
                         }};
            })),
            "");
}

TEST(HardWrites, ChunkSelectCatStackIndex) {
  EXPECT_EQ(
      differences(training([] {
        const at::Tensor x = torch::randn({64, 96});
        const at::Tensor w = parameter({96, 96});
        const at::Tensor rows = torch::randint(64, {100}, torch::kLong);
        return Net{
            {w}, [=](int) {
              const at::Tensor h = x.mm(w).tanh();
              const auto parts = h.chunk(3, 1);
              const at::Tensor c = at::cat({parts[2].exp(), parts[0], parts[1].sin()}, 1);
              const at::Tensor s = at::stack({c, h * c}, 0).select(0, 1);
              const at::Tensor picked = s.index({rows}).sigmoid();
              const auto split = picked.split_with_sizes({30, 70}, 0);
              return split[0].pow(2).mean() + (split[1] * split[1].exp()).mean() +
                     h.gather(1, rows.remainder(96).slice(0, 0, 64).unsqueeze(1)).pow(2).sum();
            }};
      })),
      "");
}

TEST(HardWrites, BoolMaskAndIndexPut) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor rows = torch::randint(64, {16}, torch::kLong);
              return Net{{w}, [=](int) {
                           const at::Tensor h = x.mm(w).tanh();
                           const at::Tensor mask = h > 0.05;
                           const at::Tensor chosen = h.index({mask}).exp();
                           at::Tensor g = h.clone();
                           g.index_put_({mask}, chosen * 0.5);
                           g.index_put_({rows}, x.slice(0, 0, 16), /*accumulate=*/true);
                           g.masked_fill_(h < -0.4, 0.1);
                           g = g.scatter_add(1, rows.remainder(96).expand({64, 16}),
                                             h.slice(1, 0, 16));
                           return (g.sin() * g).mean();
                         }};
            })),
            "");
}

TEST(HardWrites, OutVariantsWithoutGradients) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              at::Tensor buffer = torch::zeros({64, 96});
              return Net{{w},
                         [=](int) mutable {
                           at::Tensor scale = at::empty({0});
                           {
                             const torch::NoGradGuard no_grad;
                             at::mul_out(buffer, x, x);
                             at::exp_out(scale, -buffer);
                           }
                           const at::Tensor h = (x.mm(w) * scale).tanh() + buffer;
                           {
                             const torch::NoGradGuard no_grad;
                             at::add_out(buffer, buffer, h);
                           }
                           return (h.exp() * scale).mean();
                         },
                         {buffer}};
            })),
            "");
}

// A buffer of `empty` that is filled in parts keeps bytes that no op has written: no recipe.
TEST(HardWrites, EmptyBufferFilledInParts) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor parts = at::empty({128, 96});
                           parts.slice(0, 0, 32).copy_(x.slice(0, 0, 32));
                           parts.slice(0, 32, 64).copy_(x.slice(0, 32, 64).exp());
                           const at::Tensor h = parts.slice(0, 0, 64).mm(w);
                           return (h * parts.slice(0, 0, 64)).exp().mean();
                         }};
            })),
            "");
}

TEST(HardWrites, TensorFromHostValuesThenWritten) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const std::vector<float> values(64 * 96, 0.25F);
              return Net{{w}, [=](int step) {
                           at::Tensor t = torch::tensor(values).view({64, 96});
                           t.mul_(step);
                           t.slice(0, 0, 8).add_(1);
                           return (x.mm(w) * t).exp().mean();
                         }};
            })),
            "");
}

// y's recipe reads h as it was; h is overwritten by the program afterwards.
TEST(HardWrites, RecordedInputOverwrittenAfterwards) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w) + 1;
                           const at::Tensor y = (h + x).exp();
                           const at::Tensor z = (y * 0.1).sin();
                           {
                             const torch::NoGradGuard no_grad;
                             h.zero_();
                             h.data().fill_(3);
                           }
                           return (z * y).mean() + h.mean();
                         }};
            })),
            "");
}

// The batch is overwritten before anything that depends on it has been saved.
TEST(HardWrites, BatchOverwrittenBeforeTheSave) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w},
                         [=](int step) {
                           const at::Tensor scaled = x * 2 + step;
                           x.mul_(0.9);
                           const at::Tensor h = scaled.sin().mm(w);
                           return (h.exp() + x).mean();
                         },
                         {x}};
            })),
            "");
}

TEST(HardWrites, BatchOverwrittenAfterTheSaveAndAgain) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w},
                         [=](int step) {
                           at::Tensor h = (x + 0.5).exp().mm(w);
                           x.data().mul_(0.5);
                           h = h + (x * 3).sigmoid();
                           x.slice(0, 0, 20).data().add_(step * 0.1);
                           h = h * (x - 1).tanh();
                           x.copy_(torch::randn({64, 96}));
                           return h.pow(2).mean();
                         },
                         {x}};
            })),
            "");
}

// Each read makes a short-lived alias with a version counter of its own.
TEST(HardWrites, BufferReadThroughDataThenOverwrittenLate) {
  EXPECT_EQ(differences(training([] {
                          const at::Tensor x = torch::randn({64, 96});
                          const at::Tensor w = parameter({96, 96});
                          const at::Tensor scale = torch::rand({64, 96}) + 0.5;
                          return Net{{w},
                                     [=](int step) {
                                       at::Tensor h = (x.mm(w) + scale.data()).exp();
                                       h = (h * 0.1 + scale.data()).sin() + h;
                                       if (step > 7) {
                                         scale.data().mul_(1.5);
                                       }
                                       return (h * h).mean();
                                     },
                                     {scale}};
                        }),
                        12),
            "");
}

TEST(HardWrites, WriteThatAppearsLateIntoAnInput) {
  EXPECT_EQ(differences(training([] {
                          const at::Tensor x = torch::randn({64, 96});
                          const at::Tensor bias = torch::randn({64, 96});
                          const at::Tensor w = parameter({96, 96});
                          return Net{{w},
                                     [=](int step) {
                                       const at::Tensor h = (x.mm(w) + bias).exp();
                                       const at::Tensor y = (h + bias).sigmoid();
                                       if (step >= 9) {
                                         bias.add_(step);
                                       }
                                       return (y * h).mean();
                                     },
                                     {bias}};
                        }),
                        12),
            "");
}

// A second backward after a write that only the optimizer's phase sees.
TEST(HardWrites, WriteToAnActivationBetweenTwoBackwards) {
  const Program program = []() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const Net net{{parameter({96, 96}), parameter({96, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      at::Tensor h = x.mm(net.parameters[0]) + 1;
      const at::Tensor y = (h + x).exp();
      const at::Tensor first = (x.mm(net.parameters[1])).exp().mean();
      const at::Tensor second = (y * 0.1).sin().mul(y).mean();
      first.backward();
      {
        const torch::NoGradGuard no_grad;
        h.zero_();
      }
      second.backward();
      descend(net);
      return observed(net, first + second);
    };
  };
  EXPECT_EQ(differences(program), "");
}

// Two tensors of one storage that no view operator connects.
TEST(HardWrites, StorageSharedBySet) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           const at::Tensor h = x * 2;
                           const at::Tensor y = (x.mm(w) + h).exp();
                           at::Tensor same = at::empty({0});
                           same.set_(h.storage(), 48, {32, 96}, {96, 1});
                           same.mul_(0.5).add_(x.slice(0, 0, 32));
                           const at::Tensor z = (h * y).sin();
                           at::Tensor replaced = at::zeros({64, 96});
                           replaced.set_data(h.exp());
                           return (z * y * replaced).mean() + same.sum() * 1e-3;
                         }};
            })),
            "");
}

// A mutating op fills one buffer of no recipe together with one that has a recipe.
TEST(HardWrites, OneOpWritesTwoBuffersOneOfThemOpaque) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor indices = at::empty({96}, torch::kLong);
                           at::Tensor values = at::empty({96});
                           std::memset(indices.data_ptr(), 0, indices.nbytes());
                           indices.add_(1);
                           {
                             const torch::NoGradGuard no_grad;
                             at::max_out(values, indices, x, 0);
                           }
                           const at::Tensor scale = values.expand({64, 96}) + 1;
                           return (x.mm(w) * scale.exp()).sin().mean() + indices.sum() * 0.001;
                         }};
            })),
            "");
}

// A kernel that torch does not know writes into memory that an op has filled before.
Program written_behind_torchs_back(bool into_empty) {
  return training([=] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor h = x.mm(w);
                 const at::Tensor scale = into_empty ? at::empty({64, 96}) : torch::zeros({64, 96});
                 auto* values = scale.data_ptr<float>();
                 std::fill(values, values + scale.numel(), 0.5F);
                 const at::Tensor y = (h * scale).exp() + scale.sin();
                 return (y * y).mean();
               }};
  });
}

TEST(HardWrites, UnknownKernelIntoEmptyMemory) {
  EXPECT_EQ(differences(written_behind_torchs_back(true)), "");
}

TEST(HardWrites, UnknownKernelIntoFilledMemoryIsFoundByVerification) {
  const Program program = written_behind_torchs_back(false);
  const Observed plain = run_plain(program, 9);
  SessionOptions options;
  options.budget = "none";
  options.store = false;
  const SessionRun run = run_session(program, 9, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_GT(run.stats.mismatched, 0);

  // Before verification, pressure may need what cannot be rebuilt: refused by name, never wrong.
  Session session(options);
  const Chaos chaos(1, 7);
  const StepFunction step_function = program();
  try {
    const Step step = session.step();
    step_function(1);
    ADD_FAILURE() << "a wrong recipe went unnoticed";
  } catch (const InternalError& error) {
    EXPECT_NE(error.message().find("gave other bytes"), std::string::npos) << error.message();
  }
}

// The unknown kernel appears in a structure that the session has not seen before.
TEST(HardWrites, UnknownKernelInALaterStructure) {
  const Program program = [] {
    StepFunction known = training([] {
      const at::Tensor x = torch::randn({64, 96});
      const at::Tensor w = parameter({96, 96});
      return Net{{w}, [=](int step) {
                   const at::Tensor h = x.mm(w);
                   const at::Tensor scale = torch::zeros({64, 96}) + (step > 8 ? 1 : 2);
                   const at::Tensor shifted = step > 8 ? torch::zeros({64, 96}) : scale.exp();
                   if (step > 8) {
                     auto* values = shifted.data_ptr<float>();
                     std::fill(values, values + shifted.numel(), 0.5F);
                   }
                   const at::Tensor y = (h * shifted).exp() * scale;
                   return (y * y).sin().mean();
                 }};
    })();
    return known;
  };
  const Observed plain = run_plain(program, 60);
  const int64_t smallest = smallest_budget(program);
  SessionOptions options;
  options.store = false;
  options.budget = std::to_string(smallest + smallest / 10 + 256 * 1024);
  SessionRun run;
  try {
    run = run_session(program, 60, options);
  } catch (const InternalError& error) {
    EXPECT_NE(error.message().find("gave other bytes"), std::string::npos) << error.message();
    return;
  }
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.stats.variants, 2);
}

TEST(HardWrites, DetachedAndNoGradStatistics) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor average = torch::zeros({96});
              const at::Tensor amax = torch::zeros({});
              return Net{{w},
                         [=](int) {
                           const at::Tensor h = x.mm(w);
                           {
                             const torch::NoGradGuard no_grad;
                             average.mul_(0.9).add_(h.mean(0), 0.1);
                             amax.copy_(at::max(amax, h.abs().max()));
                           }
                           const at::Tensor scaled = h / amax * 3;
                           return ((scaled - average).exp() * scaled).mean();
                         },
                         {average, amax}};
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
