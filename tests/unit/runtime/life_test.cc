// The life of a session: stored files, budgets, divergence, rescue, canary, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/trace_file.h"
#include "training_pair.h"

namespace lowtide::testing {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

std::atomic<int> noise_calls{0};
std::atomic<bool> noise_on{false};

at::Tensor noisy(const at::Tensor& x) {
  at::Tensor y = at::sigmoid(x);
  if (noise_on) {
    y.add_(1e-3 * ++noise_calls);
  }
  return y;
}

TORCH_LIBRARY(lowtide_test, m) { m.def("noisy(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lowtide_test, CPU, m) { m.impl("noisy", &noisy); }

at::Tensor call_noisy(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lowtide_test::noisy", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

std::vector<at::Tensor> observe(const nn::Module& model, const at::Tensor& loss) {
  std::vector<at::Tensor> all{loss.detach().clone()};
  for (const at::Tensor& p : model.parameters()) {
    all.push_back(p.detach().clone());
  }
  return all;
}

// A deep MLP with dropout; `around` may change what happens in a step.
struct Hooks {
  std::function<at::Tensor(int step, at::Tensor x)> input = [](int, at::Tensor x) { return x; };
  std::function<at::Tensor(int step, int layer, at::Tensor h)> hidden = [](int, int, at::Tensor h) {
    return h;
  };
  std::function<void(int step)> before_backward = [](int) {};
};

Program mlp(Hooks hooks = {}, int64_t batch = 256) {
  return [=]() -> StepFunction {
    torch::manual_seed(3);
    nn::ModuleList layers;
    for (int i = 0; i < 6; ++i) {
      layers->push_back(nn::Linear(64, 64));
    }
    auto optimizer = std::make_shared<torch::optim::AdamW>(layers->parameters(), 1e-3);
    const at::Tensor x = torch::randn({batch, 64});
    return [=](int step) mutable {
      optimizer->zero_grad();
      at::Tensor h = hooks.input(step, x);
      for (int i = 0; i < 6; ++i) {
        h = hooks.hidden(step, i, h);
        h = torch::dropout(
            torch::gelu(layers[static_cast<size_t>(i)]->as<nn::Linear>()->forward(h)), 0.2, true);
      }
      const at::Tensor loss = h.pow(2).mean();
      hooks.before_backward(step);
      loss.backward();
      optimizer->step();
      return observe(*layers, loss);
    };
  };
}

std::string tight(const Program& program) {
  return std::to_string(smallest_budget(program) + 384 * 1024);
}

TEST(SessionLife, ReachesEnforceAndDropsUnderATightBudget) {
  const SessionRun run = run_session(mlp(), 9, unstored(tight(mlp())));
  EXPECT_EQ(run.stats.phase, SessionPhase::enforce);
  ASSERT_TRUE(run.plan.has_value());
  EXPECT_GT(run.plan->decisions.size(), 5U);
  EXPECT_EQ(run.stats.steps_over_budget, 0);
  EXPECT_GT(run.steps.back().replayed_ops, 0);
  EXPECT_EQ(run.observed, run_plain(mlp(), 9));
}

TEST(SessionLife, PredictedPeakIsTheMeasuredOne) {
  const SessionRun run = run_session(mlp({}, 2048), 9, unstored(tight(mlp({}, 2048))));
  const double predicted = static_cast<double>(run.plan->predicted.peak_requested_bytes);
  const double measured = static_cast<double>(run.steps.back().peak_requested_bytes);
  EXPECT_NEAR(measured / predicted, 1.0, 0.005);
  EXPECT_GE(run.plan->predicted.peak_reserved_bytes, run.steps.back().peak_reserved_bytes);
}

TEST(SessionLife, AnotherStrategyPlansOnlyWhereItIsNamedRight) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  options.strategy = "greedy";
  const SessionRun run = run_session(mlp(), 9, options);
  EXPECT_EQ(run.plan->strategy, "greedy");
  // The trace is stored, the plan not: a session with the default strategy makes its own.
  options.strategy.clear();
  EXPECT_NE(run_session(mlp(), 9, options).plan->strategy, "greedy");
  EXPECT_EQ(run.observed, run_plain(mlp(), 9));
  options.strategy = "clever";
  EXPECT_THROW(const Session session(options), InvalidInput);
}

// Verify measures what an exchange of memory costs; plans are priced by it, and with room there is
// nothing to pay.
TEST(SessionLife, ExchangesOfMemoryHaveAPriceAndAnAmpleBudgetPaysNone) {
  // No two layers are of one size, so that little of what is freed fits again.
  const Program program = [] {
    torch::manual_seed(4);
    nn::Sequential layers;
    for (int64_t width = 64; width < 64 + 12 * 24; width += 24) {
      layers->push_back(nn::Linear(width, width + 24));
      layers->push_back(nn::GELU());
    }
    const at::Tensor x = torch::randn({256, 64});
    return [=](int) mutable {
      layers->zero_grad();
      const at::Tensor loss = layers->forward(x).square().mean();
      loss.backward();
      return observe(*layers, loss);
    };
  };
  const std::string budget = std::to_string(smallest_budget(program) + 384 * 1024);
  const SessionRun small = run_session(program, 9, unstored(budget));
  ASSERT_TRUE(small.trace.has_value());
  ASSERT_GT(small.trace->exchange_ns, 0);
  const Predicted& paid = small.plan->predicted;
  EXPECT_EQ(paid.memory_ns % small.trace->exchange_ns, 0);
  EXPECT_EQ(paid.step_ns, small.trace->step_ns + paid.recompute_ns + paid.memory_ns);

  const int64_t reserved = small.trace->peaks.rounded_bytes * 2;
  const SessionRun ample = run_session(program, 9, unstored(std::to_string(reserved)));
  EXPECT_EQ(ample.plan->predicted.memory_ns, 0);
  EXPECT_TRUE(ample.plan->decisions.empty());
  EXPECT_LE(ample.steps.back().peak_reserved_bytes, ample.plan->predicted.peak_reserved_bytes);
}

// An LSTM cell writes its four gates, parts of one storage, in place, and each write's result is
// saved: held by the first save, the storage stayed when the last one let it be dropped.
TEST(SessionLife, AStorageSavedBetweenItsWritersIsDropped) {
  const Program program = []() -> StepFunction {
    torch::manual_seed(3);
    nn::LSTMCell cell(64, 64);
    const at::Tensor x = torch::randn({10, 64, 64});
    return [=](int) mutable {
      cell->zero_grad();
      at::Tensor h = torch::zeros({64, 64}), c = h, sum = torch::zeros({});
      for (const at::Tensor& input : x.unbind(0)) {
        std::tie(h, c) = cell->forward(input, std::make_tuple(h, c));
        sum = sum + h.square().mean();
      }
      const at::Tensor& loss = sum;
      loss.backward();
      return observe(*cell, loss);
    };
  };
  const std::string budget = std::to_string(smallest_budget(program) + 64 * 1024);
  const SessionRun run = run_session(program, 12, unstored(budget));
  EXPECT_EQ(run.observed, run_plain(program, 12));
  ASSERT_EQ(run.stats.phase, SessionPhase::enforce);
  const StepReport& last = run.steps.back();
  EXPECT_GT(last.replayed_ops, 0);
  EXPECT_EQ(last.evictions, 0);
  EXPECT_EQ(last.peak_requested_bytes, run.plan->predicted.peak_requested_bytes);
}

TEST(SessionLife, UnwatchedStepsTellWhatWatchingAdds) {
  SessionOptions options = unstored("none");
  options.warmup_steps = 4;
  options.unwatched_steps = 3;
  const SessionRun run = run_session(mlp(), 14, options);
  EXPECT_EQ(run.observed, run_plain(mlp(), 14));
  EXPECT_EQ(
      std::count_if(run.steps.begin(), run.steps.end(),
                    [](const StepReport& step) { return step.phase == SessionPhase::warmup; }),
      7);
  ASSERT_EQ(run.stats.phase, SessionPhase::enforce);
  std::vector<int64_t> unwatched = {run.steps[1].step_ns, run.steps[3].step_ns,
                                    run.steps[5].step_ns};
  std::sort(unwatched.begin(), unwatched.end());
  EXPECT_EQ(run.trace->step_ns, unwatched[1]);
  const Predicted& predicted = run.plan->predicted;
  EXPECT_EQ(predicted.watch_ns, run.trace->watch_ns);
  EXPECT_EQ(predicted.step_ns, run.trace->step_ns + run.trace->watch_ns + predicted.recompute_ns +
                                   predicted.memory_ns);
}

TEST(SessionLife, AnUnwatchedStepThatDoesNotFitFailsAndIsTheLast) {
  SessionOptions options = unstored(tight(mlp()));
  options.warmup_steps = 3;
  options.unwatched_steps = 2;
  Session session(options);
  const StepFunction step = mlp()();
  const auto run = [&](int i) {
    const Step guard = session.step();
    (void)step(i);
  };
  run(1);
  EXPECT_THROW(run(2), c10::Error);
  for (int i = 3; i <= 12; ++i) {
    EXPECT_NO_THROW(run(i));
  }
  EXPECT_EQ(session.phase(), SessionPhase::enforce);
  EXPECT_EQ(session.stats().steps_over_budget, 0);
}

TEST(SessionLife, ASecondRunFindsTheTraceAndEnforcesFromStepOne) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  const SessionRun first = run_session(mlp(), 9, options);
  const SessionRun second = run_session(mlp(), 9, options);
  EXPECT_EQ(second.steps.front().phase, SessionPhase::enforce);
  EXPECT_EQ(second.observed, first.observed);
  options.budget = std::to_string(std::stoll(options.budget) + 200 * 1024);
  const SessionRun other_budget = run_session(mlp(), 9, options);
  EXPECT_EQ(other_budget.steps.front().phase, SessionPhase::enforce);
  EXPECT_LE(other_budget.plan->predicted.step_ns, second.plan->predicted.step_ns);
}

TEST(SessionLife, AStoredTraceOfAnotherProgramIsMeasuredAgain) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  (void)run_session(mlp(), 9, options);
  Hooks hooks;
  hooks.hidden = [](int, int, at::Tensor h) { return h.tanh(); };
  options.budget = tight(mlp(hooks));
  const SessionRun other = run_session(mlp(hooks), 12, options);
  EXPECT_EQ(other.observed, run_plain(mlp(hooks), 12));
  EXPECT_EQ(other.stats.phase, SessionPhase::enforce);
  EXPECT_EQ(other.steps[1].phase, SessionPhase::warmup);
}

TEST(SessionLife, ADamagedStoredTraceIsPassedOver) {
  const ScratchDirectory directory;
  std::ofstream(directory.path() + "/session-0123456789abcdef.trace.json") << "{\"format\":";
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  EXPECT_EQ(run_session(mlp(), 9, options).observed, run_plain(mlp(), 9));
}

TEST(SessionLife, AGivenPlanOfAnotherProgramIsRefusedByTheOpThatDiffers) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  const SessionRun first = run_session(mlp(), 9, options);
  SessionOptions given = unstored("auto");
  given.plan_file =
      directory.path() + "/session-" + fingerprint_text(first.trace->fingerprint()) + ".plan.json";
  EXPECT_EQ(run_session(mlp(), 3, given).observed, run_plain(mlp(), 3));
  Hooks hooks;
  hooks.hidden = [](int, int, at::Tensor h) { return h.tanh(); };
  try {
    (void)run_session(mlp(hooks), 3, given);
    FAIL() << "a foreign plan was accepted";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.message(), HasSubstr("aten::tanh"));
  }
}

TEST(SessionLife, AGivenPlanOfAnotherTorchIsRefusedByVersion) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  const SessionRun first = run_session(mlp(), 9, options);
  Trace trace = *first.trace;
  trace.settings.torch_version = "1.0.0";
  Plan plan = *first.plan;
  plan.trace_fingerprint = trace.fingerprint();
  write_trace(trace, directory.path() + "/old.trace.json");
  write_plan(plan, directory.path() + "/old.plan.json");
  SessionOptions given = unstored("auto");
  given.plan_file = directory.path() + "/old.plan.json";
  EXPECT_THAT([&] { const Session session(given); },
              ::testing::ThrowsMessage<Mismatch>(HasSubstr("torch was 1.0.0")));
}

TEST(SessionLife, AnImpossibleBudgetIsRefusedBeforeTheFirstStepWhenATraceIsKnown) {
  const ScratchDirectory directory;
  SessionOptions options;
  options.directory = directory.path();
  options.budget = tight(mlp());
  (void)run_session(mlp(), 9, options);
  options.budget = "200KiB";
  try {
    const Session session(options);
    FAIL() << "200 KiB accepted";
  } catch (const OutOfBudget& error) {
    EXPECT_EQ(error.budget_bytes(), 200 * 1024);
    EXPECT_GT(error.smallest_reachable_bytes(), 200 * 1024);
  }
}

TEST(SessionLife, OptionsAreChecked) {
  for (const char* budget : {"", "12 parsecs", "-1", "0"}) {
    SessionOptions options;
    options.budget = budget;
    EXPECT_THROW(const Session session(options), InvalidInput) << budget;
  }
  SessionOptions options = unstored("1MiB");
  options.reserve = "2MiB";
  EXPECT_THROW(const Session session(options), InvalidInput);
}

TEST(SessionLife, DisabledByEnvironmentEveryCallIsAPassThrough) {
  setenv("LOWTIDE_DISABLE", "1", 1);
  const SessionRun run = run_session(mlp(), 4, unstored("1KiB"));
  unsetenv("LOWTIDE_DISABLE");
  EXPECT_EQ(run.stats.phase, SessionPhase::disabled);
  EXPECT_EQ(run.observed, run_plain(mlp(), 4));
}

TEST(SessionLife, TheEndPutsAllocatorAndEngineBack) {
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  torch::autograd::Engine* const engine = &torch::autograd::Engine::get_default_engine();
  {
    const Session session(unstored("none"));
    EXPECT_NE(c10::GetAllocator(c10::kCPU), allocator);
    EXPECT_NE(&torch::autograd::Engine::get_default_engine(), engine);
    EXPECT_THROW(const Session second(unstored("none")), InvalidInput);
  }
  EXPECT_EQ(c10::GetAllocator(c10::kCPU), allocator);
  EXPECT_EQ(&torch::autograd::Engine::get_default_engine(), engine);
}

TEST(SessionLife, AGraphMayOutliveItsSession) {
  torch::manual_seed(0);
  at::Tensor w = torch::randn({128, 128}, torch::requires_grad());
  const auto forward = [&] { return torch::gelu(torch::mm(torch::sigmoid(w), w)).pow(2).mean(); };
  forward().backward();
  const at::Tensor expected = w.grad().clone();
  w.mutable_grad().reset();
  at::Tensor loss;
  {
    Session session(unstored("none"));
    const Step step = session.step();
    loss = forward();
  }
  loss.backward();
  EXPECT_TRUE(torch::equal(expected, w.grad()));
}

TEST(SessionLife, AGraphThatOutlivesItsSessionIsNoRecipeAnyMore) {
  torch::manual_seed(0);
  const at::Tensor start = torch::randn({128, 128});
  const auto run = [&](bool under_session) {
    at::Tensor w = start.clone().requires_grad_();
    at::Tensor loss;
    const auto forward = [&] { loss = torch::mm(torch::sigmoid(w), w.exp()).tanh().pow(2).mean(); };
    if (under_session) {
      Session session(unstored("none"));
      const Chaos evict_everything(1.0, 7);
      const Step step = session.step();
      forward();
      at::Tensor more = torch::empty({8});  // one more allocation: everything saved is evicted
    } else {
      forward();
    }
    w.data().mul_(2);  // autograd does not see it, and nobody watches any more
    loss.backward();
    return w.grad().clone();
  };
  const at::Tensor plain = run(false);
  EXPECT_TRUE(torch::equal(plain, run(true)));
}

// In every phase, the measured steps too: nobody logs a save that is destroyed later.
TEST(SessionLife, AGraphThatDiesAfterItsStepLeavesNoBytes) {
  torch::manual_seed(0);
  at::Tensor w = torch::randn({128, 128}, torch::requires_grad());
  Session session(unstored("none"));
  const at::Tensor scale = torch::rand({128, 128});
  const int64_t base = bytes_in_use();
  for (int i = 0; i < 10; ++i) {
    at::Tensor loss;
    {
      const Step step = session.step();
      const at::Tensor own = scale * 2;
      loss = torch::gelu(torch::mm(torch::sigmoid(w), w) * own).pow(2).mean();
      torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true);
    }
    EXPECT_GT(bytes_in_use(), base);
    loss.reset();
    EXPECT_EQ(bytes_in_use(), base) << to_string(session.phase());
  }
  EXPECT_EQ(session.phase(), SessionPhase::enforce);
}

TEST(Divergence, AnOddBatchAndAnExtraOpCostTimeOnly) {
  Hooks hooks;
  hooks.input = [](int step, at::Tensor x) { return x.slice(0, 0, step == 9 ? 40 : 256); };
  hooks.hidden = [](int step, int layer, at::Tensor h) {
    return step == 11 && layer == 3 ? h.sin() : h;
  };
  const SessionRun run = run_session(mlp(hooks), 14, unstored(tight(mlp())));
  EXPECT_EQ(run.observed, run_plain(mlp(hooks), 14));
  EXPECT_FALSE(run.steps[8].diverged) << "a shorter batch has the same structure";
  EXPECT_TRUE(run.steps[10].diverged);
  EXPECT_FALSE(run.steps[11].diverged);
  EXPECT_EQ(run.stats.steps_over_budget, 0);
}

TEST(Divergence, AStructureThatComesBackGetsItsOwnPlan) {
  Hooks hooks;
  hooks.hidden = [](int step, int layer, at::Tensor h) {
    return step % 3 == 0 && layer == 2 ? h.sin() : h;
  };
  SessionOptions options = unstored(std::to_string(smallest_budget(mlp()) + 900 * 1024));
  options.warmup_steps = 1;
  options.probe_steps = 1;
  const SessionRun run = run_session(mlp(hooks), 30, options);
  EXPECT_EQ(run.observed, run_plain(mlp(hooks), 30));
  EXPECT_EQ(run.stats.variants, 2);
  EXPECT_FALSE(run.steps[28].diverged);
  EXPECT_FALSE(run.steps[29].diverged);
}

TEST(Divergence, SequenceLengthsDrawnAtRandomStayUnderTheBudget) {
  Hooks hooks;
  hooks.input = [](int step, at::Tensor x) { return x.slice(0, 0, 32 + (step * 7919) % 480); };
  const Program program = mlp(hooks, 512);
  const int64_t smallest = smallest_budget(mlp({}, 512));
  const SessionRun run = run_session(program, 60, unstored(std::to_string(smallest + 512 * 1024)));
  EXPECT_EQ(run.observed, run_plain(program, 60));
  EXPECT_EQ(run.stats.steps_over_budget, 0);
  EXPECT_EQ(run.stats.phase, SessionPhase::enforce);
}

TEST(Rescue, AnInPlaceWriteToARecipesInputFirstSeenAtStep20) {
  at::Tensor bias;
  Hooks hooks;
  hooks.hidden = [&bias](int, int layer, at::Tensor h) {
    if (layer == 0) {
      bias = torch::ones({256, 64});
    }
    return layer == 2 ? h + bias : h;
  };
  // Legal: addition saves nothing, so autograd does not mind the write.
  hooks.before_backward = [&bias](int step) {
    if (step >= 20) {
      torch::NoGradGuard no_grad;
      bias.mul_(3);
      bias.data().add_(1);
    }
  };
  at::Tensor outside = torch::ones({256, 64});
  Hooks external = hooks;
  external.hidden = [&outside](int, int layer, at::Tensor h) {
    return layer == 2 ? h + outside : h;
  };
  external.before_backward = [&outside](int step) {
    if (step >= 20) {
      torch::NoGradGuard no_grad;
      outside.data().add_(1);
    }
  };
  EXPECT_EQ(run_session(mlp(hooks), 24, unstored(tight(mlp(hooks)))).observed,
            run_plain(mlp(hooks), 24));
  const Observed plain = run_plain(mlp(external), 24);
  outside.fill_(1);
  const std::string budget = tight(mlp(external));
  outside.fill_(1);
  const SessionRun run = run_session(mlp(external), 24, unstored(budget));
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.steps[18].diverged, false);
  EXPECT_GE(run.stats.rescues, 1);
}

TEST(Canary, FindsAnOpThatStopsBeingDeterministicAtStep30) {
  Hooks hooks;
  hooks.hidden = [](int, int layer, at::Tensor h) {
    return layer == 3 ? h * call_noisy(h.detach()) : h;
  };
  SessionOptions options = unstored(tight(mlp(hooks)));
  options.canary_every = 5;
  const StepFunction function = mlp(hooks)();
  noise_on = false;
  Session session(options);
  int found_at = 0;
  for (int i = 1; i <= 150 && found_at == 0; ++i) {
    noise_on = i >= 30;
    {
      const Step step = session.step();
      (void)function(i);
    }
    found_at = session.stats().dropping_stopped ? i : 0;
    ASSERT_TRUE(i >= 30 || found_at == 0) << "false alarm: " << session.stats().stop_reason;
  }
  noise_on = false;
  EXPECT_GE(found_at, 30);
  // The op itself or, where its output is recomputed on the way, the product made of it.
  EXPECT_THAT(session.stats().stop_reason, HasSubstr("recomputed bytes differ"));
}

TEST(Errors, AnExceptionInsideAStepLeavesTheSessionUsable) {
  Hooks hooks;
  bool armed = true;
  hooks.hidden = [&armed](int step, int layer, at::Tensor h) {
    if (armed && step == 10 && layer == 4) {
      throw std::runtime_error("user error");
    }
    return h;
  };
  const Program program = mlp(hooks);
  const StepFunction function = program();
  Session session(unstored(tight(mlp())));
  int64_t base = 0;
  for (int i = 1; i <= 12; ++i) {
    if (i == 10) {
      base = bytes_in_use();
      EXPECT_THROW(
          {
            const Step step = session.step();
            (void)function(i);
          },
          std::runtime_error);
      // Gradients were reset at the step's begin; nothing else may be left.
      EXPECT_LE(bytes_in_use(), base);
      continue;
    }
    const Step step = session.step();
    (void)function(i);
  }
  EXPECT_EQ(session.phase(), SessionPhase::enforce);
}

TEST(Errors, AChangedSavedTensorRaisesAutogradsOwnError) {
  const auto broken = [] {
    at::Tensor w = torch::ones({64, 64}, torch::requires_grad());
    const at::Tensor y = torch::sigmoid(torch::mm(w, w));
    const at::Tensor loss = y.pow(2).sum();
    {
      torch::NoGradGuard no_grad;
      y.mul_(2);
    }
    loss.backward();
  };
  std::string eager;
  try {
    broken();
  } catch (const c10::Error& error) {
    eager = error.what_without_backtrace();
  }
  ASSERT_THAT(eager, HasSubstr("modified by an inplace operation"));
  Session session(unstored("none"));
  const Step step = session.step();
  try {
    broken();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_EQ(error.what_without_backtrace(), eager);
  }
}

TEST(Errors, ASecondConcurrentStepRunsPlain) {
  Session session(unstored("none"));
  const Step step = session.step();
  std::thread other([&] {
    const Step concurrent = session.step();
    at::Tensor w = torch::ones({8, 8}, torch::requires_grad());
    torch::mm(w, w).sum().backward();
    EXPECT_TRUE(w.grad().defined());
  });
  other.join();
  EXPECT_EQ(session.stats().steps, 0);
}

}  // namespace
}  // namespace lowtide::testing
