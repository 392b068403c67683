// Operators that hide something: randomness, running statistics, caches, layouts, dtypes.
#include "hard_program.h"

#include <ATen/autocast_mode.h>

namespace lowtide::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

TEST(HardOps, RandomTensorsInTheForward) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              return Net{{w}, [=](int) {
                           at::Tensor h = x.mm(w);
                           h = h * (1 + 0.1 * torch::randn_like(h)) + torch::rand({64, 96});
                           h = at::dropout(h.sin(), 0.3, true);
                           h = h * torch::bernoulli(torch::full({64, 96}, 0.7));
                           at::Tensor noise = torch::empty({64, 96});
                           noise.uniform_(0.5, 1.5);
                           h = F::rrelu(h * noise, F::RReLUFuncOptions().training(true));
                           h = F::alpha_dropout(h,
                                                F::AlphaDropoutFuncOptions().p(0.1).training(true));
                           return (h * h.index_select(0, torch::randperm(64))).exp().mean();
                         }};
            })),
            "");
}

TEST(HardOps, GeneratorPassedByHand) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Generator mine = at::detail::createCPUGenerator(17);
              return Net{{w}, [=](int) {
                           const at::Tensor mask = at::bernoulli(torch::full({64, 96}, 0.6), mine);
                           const at::Tensor noise = at::normal(0.0, 1.0, {64, 96}, mine);
                           const at::Tensor h = (x.mm(w) * mask + noise).sin();
                           const at::Tensor other = at::rand({64, 96}, mine, at::kFloat);
                           return (h * other.exp() * h).mean() + at::randn({4}, mine).sum() * 0;
                         }};
            })),
            "");
}

// An operator that draws from the default generator and does not say so.
at::Tensor add_noise(const at::Tensor& x) { return x + at::rand(x.sizes()); }

TORCH_LIBRARY(lowtide_hard_test, library) {
  library.def("noisy(Tensor x) -> Tensor");
  library.impl("noisy", c10::DispatchKey::CPU, TORCH_FN(add_noise));
}

TEST(HardOps, UndeclaredRandomnessIsFoundAndTheStreamGoesOn) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("lowtide_hard_test::noisy", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  const Program program = training([op] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor n = op.call(x);
                 return (at::dropout(x.mm(w), 0.3, true) * n).exp().mean();
               }};
  });
  const Observed plain = run_plain(program, 9);
  SessionOptions options;
  options.budget = "none";
  options.store = false;
  setenv("LOWTIDE_FRONT_END", "dispatch_key", 1);
  const SessionRun run = run_session(program, 9, options);
  unsetenv("LOWTIDE_FRONT_END");
  EXPECT_EQ(run.observed, plain);
  EXPECT_GT(run.stats.mismatched, 0);
}

TEST(HardOps, AttentionWithAndWithoutDropout) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({2, 4, 32, 32});
              const at::Tensor w = parameter({32, 32});
              return Net{{w}, [=](int) {
                           const at::Tensor q = x.matmul(w);
                           const at::Tensor a =
                               at::scaled_dot_product_attention(q, q, x, {}, 0.0, true);
                           const at::Tensor b = at::scaled_dot_product_attention(a, q, a, {}, 0.25);
                           return (a * b).sin().mean();
                         }};
            })),
            "");
}

TEST(HardOps, BatchNormCalledTwicePerStep) {
  EXPECT_EQ(differences(training([] {
              nn::Sequential model(nn::Linear(96, 96), nn::BatchNorm1d(96), nn::GELU(),
                                   nn::Linear(96, 96), nn::BatchNorm1d(96), nn::ReLU());
              const at::Tensor x = torch::randn({64, 96});
              return Net{model->parameters(),
                         [=](int) mutable {
                           return model->forward(x).pow(2).mean() +
                                  model->forward(x * 2 + 1).exp().mean();
                         },
                         model->buffers()};
            })),
            "");
}

// In eval mode the running statistics are read, not written.
TEST(HardOps, FrozenBatchNormInATrainedGraph) {
  EXPECT_EQ(differences(training([] {
              nn::Sequential model(nn::Linear(96, 96), nn::BatchNorm1d(96), nn::GELU());
              const at::Tensor x = torch::randn({64, 96});
              model->forward(x);
              model->eval();
              return Net{model->parameters(),
                         [=](int) mutable { return model->forward(x).exp().mean(); },
                         model->buffers()};
            })),
            "");
}

// The same op at the same place, first training, then frozen.
TEST(HardOps, BatchNormFrozenFromStepEightOn) {
  EXPECT_EQ(differences(training([] {
                          nn::Sequential model(nn::Linear(96, 96), nn::BatchNorm1d(96), nn::GELU());
                          const at::Tensor x = torch::randn({64, 96});
                          return Net{model->parameters(),
                                     [=](int step) mutable {
                                       model->train(step < 8);
                                       return model->forward(x).exp().mean();
                                     },
                                     model->buffers()};
                        }),
                        12),
            "");
}

TEST(HardOps, BatchNormWithCumulativeAverageAndInstanceNorm) {
  EXPECT_EQ(differences(training([] {
              nn::BatchNorm2d norm(nn::BatchNorm2dOptions(8).momentum(std::nullopt));
              nn::InstanceNorm2d instance(
                  nn::InstanceNorm2dOptions(8).affine(true).track_running_stats(true));
              nn::Conv2d conv(nn::Conv2dOptions(8, 8, 3).padding(1));
              std::vector<at::Tensor> parameters = conv->parameters();
              for (const auto& p : norm->parameters()) parameters.push_back(p);
              for (const auto& p : instance->parameters()) parameters.push_back(p);
              std::vector<at::Tensor> buffers = norm->buffers();
              for (const auto& b : instance->buffers()) buffers.push_back(b);
              const at::Tensor x = torch::randn({8, 8, 16, 16});
              return Net{parameters,
                         [=](int) mutable {
                           const at::Tensor h = norm->forward(conv->forward(x)).relu();
                           return instance->forward(conv->forward(h)).sigmoid().pow(2).mean();
                         },
                         buffers};
            })),
            "");
}

TEST(HardOps, EmbeddingsDenseSparseAndBags) {
  const Program program = []() -> StepFunction {
    begin_program();
    nn::Embedding dense(200, 48);
    nn::Embedding sparse(nn::EmbeddingOptions(200, 48).sparse(true));
    nn::EmbeddingBag mean(nn::EmbeddingBagOptions(200, 48).mode(torch::kMean));
    nn::EmbeddingBag max(nn::EmbeddingBagOptions(200, 48).mode(torch::kMax));
    nn::EmbeddingBag sum(nn::EmbeddingBagOptions(200, 48).mode(torch::kSum).sparse(true));
    const at::Tensor tokens = torch::randint(200, {160, 8}, torch::kLong);
    Net net;
    for (nn::Module* m : std::initializer_list<nn::Module*>{dense.get(), sparse.get(), mean.get(),
                                                            max.get(), sum.get()}) {
      net.parameters.push_back(m->parameters()[0]);
    }
    return [=](int) mutable {
      forget_gradients(net);
      const at::Tensor h =
          dense->forward(tokens).tanh().sum(1) + sparse->forward(tokens).sin().mean(1);
      const at::Tensor g =
          mean->forward(tokens) * max->forward(tokens) + sum->forward(tokens).exp();
      const at::Tensor loss = (h * g).sigmoid().pow(2).mean();
      loss.backward();
      EXPECT_TRUE(net.parameters[1].grad().is_sparse());
      descend(net);
      return observed(net, loss);
    };
  };
  EXPECT_EQ(differences(program), "");
}

TEST(HardOps, EinsumScansTopkAndSort) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({8, 16, 48});
              const at::Tensor w = parameter({48, 48});
              return Net{{w}, [=](int) {
                           const at::Tensor h = at::einsum("bij,jk->bik", {x, w}).tanh();
                           const at::Tensor c = h.cumsum(1) * 0.1 + h.cumprod(2);
                           const auto [top, where] = c.topk(24, 2);
                           const at::Tensor sorted = std::get<0>(c.sort(1, true));
                           const at::Tensor low = std::get<0>(c.cummax(2)) + c.logcumsumexp(1);
                           const at::Tensor s =
                               at::einsum("bij,bkj->bik", {sorted, low}).softmax(2);
                           return (top.exp()).mean() + (s * s.log_softmax(1)).sum() +
                                  c.gather(2, where).std() + h.norm(2, 1).mean() + c.median() +
                                  c.amax(2).sum() * 0.01;
                         }};
            })),
            "");
}

TEST(HardOps, FourierAndComplexWeights) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor z = torch::randn({64, 49}, at::kComplexFloat).requires_grad_();
              return Net{{w, z}, [=](int) {
                           const at::Tensor f = at::fft_rfft(x.mm(w)) * z;
                           const at::Tensor g = f.conj() * f.exp().conj() + at::real(f) * f;
                           const at::Tensor back = at::fft_irfft(g, 96);
                           at::Tensor v = at::view_as_real(f.clone());
                           v = v.select(2, 0).mul(v.select(2, 1));
                           return back.sin().mean() + v.tanh().pow(2).mean() +
                                  at::view_as_complex(torch::stack({v, v}, -1)).abs().mean() +
                                  f.t().conj().matmul(f).abs().mean();
                         }};
            })),
            "");
}

TEST(HardOps, ConvolutionsOfManyKindsChannelsLast) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x =
                  torch::randn({4, 8, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
              const at::Tensor w = parameter({8, 8, 3, 3});
              const at::Tensor depthwise = parameter({8, 1, 3, 3});
              const at::Tensor up = parameter({8, 8, 2, 2});
              const at::Tensor line = parameter({16, 8, 3});
              return Net{{w, depthwise, up, line}, [=](int) {
                           at::Tensor h = at::conv2d(x, w, {}, 1, 1).relu();
                           h = at::conv2d(h, depthwise, {}, 1, 2, 2, 8).sigmoid();
                           EXPECT_TRUE(h.is_contiguous(at::MemoryFormat::ChannelsLast));
                           h = at::conv_transpose2d(h, up, {}, 2);
                           h = std::get<0>(at::max_pool2d_with_indices(h, 2, 2)) +
                               at::avg_pool2d(h, 2);
                           h = at::upsample_bilinear2d(h, {24, 24}, false).exp();
                           h = at::pixel_unshuffle(h, 2).slice(1, 0, 8).contiguous();
                           const at::Tensor l = at::conv1d(h.flatten(2), line, {}, 2, 1);
                           return at::group_norm(l, 4).pow(2).mean() +
                                  at::pad(h, {1, 1, 1, 1}, "reflect").mean();
                         }};
            })),
            "");
}

TEST(HardOps, LossesWithScratchOfTheirOwn) {
  EXPECT_EQ(
      differences(training([] {
        const at::Tensor x = torch::randn({40, 8, 96});
        const at::Tensor w = parameter({96, 24});
        const at::Tensor targets = torch::randint(1, 24, {8, 12}, torch::kLong);
        const at::Tensor labels = torch::randint(24, {320}, torch::kLong);
        const at::Tensor lengths = torch::tensor({40, 39, 30, 25, 40, 31, 40, 40}, torch::kLong);
        const at::Tensor target_lengths = torch::tensor({12, 3, 8, 5, 12, 1, 9, 10}, torch::kLong);
        return Net{{w}, [=](int) {
                     const at::Tensor h = x.matmul(w).tanh();
                     const at::Tensor ctc =
                         at::ctc_loss(h.log_softmax(2), targets, lengths, target_lengths);
                     const at::Tensor flat = h.view({320, 24});
                     return ctc + at::multi_margin_loss(flat, labels) +
                            at::cdist(flat, flat).exp().mean() * 0.1 +
                            F::cosine_embedding_loss(flat.sin(), flat.exp(), torch::ones({320})) +
                            at::huber_loss(flat, flat.flip(0)) + at::kl_div(flat, flat.sigmoid());
                   }};
      })),
      "");
}

TEST(HardOps, MatrixDecompositions) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({4, 48, 48});
              const at::Tensor w = parameter({48, 48});
              return Net{{w}, [=](int) {
                           const at::Tensor a = x.matmul(w) + 2 * torch::eye(48);
                           const at::Tensor spd = a.matmul(a.transpose(1, 2)) + torch::eye(48);
                           const at::Tensor l = at::linalg_cholesky(spd);
                           const at::Tensor s = at::linalg_solve(spd, a);
                           return l.tanh().mean() + s.sin().mean() + at::linalg_inv(spd).mean() +
                                  std::get<0>(at::linalg_qr(a)).pow(2).sum() * 0.01 +
                                  at::linalg_svdvals(a).mean() + at::logdet(spd).mean() +
                                  at::linalg_matrix_exp(a * 0.01).mean();
                         }};
            })),
            "");
}

TEST(HardOps, RecurrentCells) {
  EXPECT_EQ(differences(training([] {
              nn::GRU gru(nn::GRUOptions(48, 48).num_layers(2).bidirectional(true).dropout(0.2));
              nn::LSTMCell cell(48, 48);
              const at::Tensor x = torch::randn({5, 16, 48});
              std::vector<at::Tensor> parameters = gru->parameters();
              for (const auto& p : cell->parameters()) parameters.push_back(p);
              return Net{parameters, [=](int) mutable {
                           auto state = cell->forward(x[0]);
                           for (int t = 1; t < 5; ++t) {
                             state = cell->forward(x[t], state);
                           }
                           return std::get<0>(gru->forward(x)).pow(2).mean() +
                                  std::get<1>(state).sin().mean();
                         }};
            })),
            "");
}

// The weight is cast once and the cast is cached for both uses.
TEST(HardOps, AutocastWithASharedWeight) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor b = parameter({96});
              return Net{{w, b}, [=](int) {
                           at::autocast::set_autocast_enabled(at::kCPU, true);
                           at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
                           at::autocast::increment_nesting();
                           at::Tensor h = at::linear(x, w, b).sigmoid();
                           h = at::linear(h, w, b).exp();
                           {
                             at::autocast::set_autocast_enabled(at::kCPU, false);
                             h = h.to(at::kFloat).mm(w).tanh();
                             at::autocast::set_autocast_enabled(at::kCPU, true);
                           }
                           h = at::layer_norm(h.matmul(w), {96}).softmax(1);
                           if (at::autocast::decrement_nesting() == 0) {
                             at::autocast::clear_cache();
                           }
                           at::autocast::set_autocast_enabled(at::kCPU, false);
                           return (h.to(at::kFloat) * x).sum();
                         }};
            })),
            "");
}

// Factories and integer division ask for the default dtype; replay runs long after it changed back.
TEST(HardOps, DefaultDtypeOfTheForward) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor counts = torch::randint(1, 9, {64, 96}, torch::kLong);
              return Net{{w}, [=](int) {
                           torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
                           const at::Tensor scale =
                               torch::rand({64, 96}).exp() * (counts / 3).sin();
                           torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
                           return (x.mm(w) * scale).sin().mean();
                         }};
            })),
            "");
}

TEST(HardOps, SizesOfZeroAndOne) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({64, 96});
              const at::Tensor w = parameter({96, 96});
              const at::Tensor gain = parameter({});
              return Net{{w, gain}, [=](int) {
                           at::Tensor h = x.mm(w) * gain.exp();
                           const at::Tensor none = h.slice(0, 5, 5).exp() * h.slice(0, 5, 5);
                           h = at::cat({h, none, torch::zeros({0, 96})}, 0);
                           const at::Tensor mask = torch::zeros({64, 96}, torch::kBool);
                           h.masked_scatter_(mask, torch::zeros({1}));
                           return (h * gain).sin().mean() + none.sum() + h.index({mask}).sum() +
                                  h.max() * gain.tanh();
                         }};
            })),
            "");
}

TEST(HardOps, RoutingByDataDependentShapes) {
  EXPECT_EQ(differences(training([] {
              const at::Tensor x = torch::randn({128, 48});
              const at::Tensor router = parameter({48, 4});
              std::vector<at::Tensor> parameters{router};
              for (int i = 0; i < 4; ++i) parameters.push_back(parameter({48, 48}));
              return Net{
                  parameters, [=](int) {
                    const at::Tensor gates = x.mm(router).softmax(1);
                    const auto [weight, chosen] = gates.max(1);
                    at::Tensor out = torch::zeros_like(x);
                    for (int e = 0; e < 4; ++e) {
                      const at::Tensor rows = (chosen == e).nonzero().squeeze(1);
                      const at::Tensor y = at::gelu(x.index_select(0, rows).mm(parameters[e + 1]));
                      out = out.index_add(0, rows, y * weight.index_select(0, rows).unsqueeze(1));
                    }
                    return out.pow(2).mean();
                  }};
            })),
            "");
}

TEST(HardOps, TransformerDecoderWithMasks) {
  EXPECT_EQ(differences(training([] {
              nn::TransformerDecoderLayer layer(
                  nn::TransformerDecoderLayerOptions(48, 4).dim_feedforward(96).dropout(0.1));
              const at::Tensor x = torch::randn({16, 8, 48});
              const at::Tensor memory = torch::randn({12, 8, 48});
              const at::Tensor causal = torch::full({16, 16}, -1e9).triu(1);
              return Net{layer->parameters(), [=](int) mutable {
                           return layer->forward(x, memory, causal).sin().mean();
                         }};
            })),
            "");
}

}  // namespace
}  // namespace lowtide::testing
