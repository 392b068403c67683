// Several threads and one session: in turn, beside each other, and graphs that wander between them.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "hard_program.h"

namespace lowtide::testing {
namespace {

Net two_layers() {
  const at::Tensor x = torch::randn({64, 96});
  const at::Tensor w = parameter({96, 96});
  const at::Tensor v = parameter({96, 96});
  return {{w, v}, [=](int) {
            const at::Tensor h = x.mm(w).exp();
            return ((h * 0.1).sin().mm(v).sigmoid() * h).mean();
          }};
}

Program with_dropout() {
  return training([] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 at::Tensor h = x;
                 for (int i = 0; i < 6; ++i) {
                   h = at::dropout(at::gelu(h.mm(w)), 0.2, true);
                 }
                 return h.pow(2).mean();
               }};
  });
}

// Thread k runs what it is given in round k, k + n, k + 2n, ...
class InTurn {
 public:
  explicit InTurn(int threads) : count_(threads) {}
  void run(int rounds, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int k = 0; k < count_; ++k) {
      threads.emplace_back([this, k, rounds, &body] {
        at::set_num_threads(1);
        for (int round = k + 1; round <= rounds; round += count_) {
          std::unique_lock lock(mutex_);
          turn_.wait(lock, [&] { return next_ == round; });
          body(round);
          ++next_;
          turn_.notify_all();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  int count_;
  int next_ = 1;
  std::mutex mutex_;
  std::condition_variable turn_;
};

class Threads : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("LOWTIDE_FRONT_END", GetParam(), 1); }
  void TearDown() override { unsetenv("LOWTIDE_FRONT_END"); }
};

TEST_P(Threads, FourInTurnAreRight) {
  const Program program = with_dropout();
  const Observed plain = run_plain(program, 16);
  const std::string tight = std::to_string(smallest_budget(program) + 64 * 1024);
  const StepFunction step_function = program();
  Session session(unstored(tight));
  std::vector<std::vector<at::Tensor>> seen(17);
  Observed observed;
  InTurn(4).run(16, [&](int round) {
    {
      const Step step = session.step();
      seen[static_cast<size_t>(round)] = step_function(round);
    }
    observed.push_back(observe(seen[static_cast<size_t>(round)]));
    seen[static_cast<size_t>(round)].clear();
  });
  EXPECT_EQ(observed, plain);
  EXPECT_EQ(session.phase(), SessionPhase::enforce);
  EXPECT_GT(session.last_step().replayed_ops, 0);
  EXPECT_EQ(session.stats().divergences, 0);
}

// Each thread has a model of its own; whoever is second runs plainly.
TEST_P(Threads, StepsBesideEachOtherAreRightAndTheSecondIsSaidAloud) {
  constexpr int kSteps = 30;
  const Program program = training(two_layers);
  const Observed plain = run_plain(program, kSteps);
  Session session(unstored("none"));
  std::vector<StepFunction> programs;
  for (int i = 0; i < 3; ++i) {
    programs.push_back(program());
  }
  ::testing::internal::CaptureStderr();
  std::vector<Observed> observed(3);
  {
    const Step held = session.step();  // at least the others' first steps are second ones
    std::vector<std::thread> threads;
    for (size_t i = 1; i < 3; ++i) {
      threads.emplace_back([&, i] {
        at::set_num_threads(1);
        for (int step_number = 1; step_number <= kSteps; ++step_number) {
          const Step step = session.step();
          observed[i].push_back(observe(programs[i](step_number)));
        }
      });
    }
    for (int step_number = 1; step_number <= kSteps; ++step_number) {
      observed[0].push_back(observe(programs[0](step_number)));
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const Observed& one : observed) {
    EXPECT_EQ(one, plain);
  }
  const std::string line = "a second step began while one is running";
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find(line), said.rfind(line)) << "said more than once: " << said;
  EXPECT_EQ(session.stats().steps, 1);
}

// Free-running: any of them may get the session, step by step.
TEST_P(Threads, FourAtOnceAreRight) {
  constexpr int kSteps = 25;
  const Program program = training(two_layers);
  const Observed plain = run_plain(program, kSteps);
  std::vector<StepFunction> programs;
  for (int i = 0; i < 4; ++i) {
    programs.push_back(program());
  }
  std::vector<Observed> observed(4);
  Session session(unstored("none"));
  const Chaos chaos(0.2, 5);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      for (int step_number = 1; step_number <= kSteps; ++step_number) {
        const Step step = session.step();
        observed[i].push_back(observe(programs[i](step_number)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Observed& one : observed) {
    EXPECT_EQ(one, plain);
  }
  EXPECT_GT(session.stats().steps, 0);
}

// A backward that another thread runs plainly is none of the step's.
TEST_P(Threads, ABackwardElsewhereDoesNotEndTheForward) {
  const Program program = [] {
    begin_program();
    const Net net = two_layers();
    return [=](int) {
      forget_gradients(net);
      const at::Tensor h = net.parameters[0].exp();
      std::thread([] {
        const at::Tensor w = torch::ones({64, 64}, torch::requires_grad());
        w.exp().sin().sum().backward();
      }).join();
      const at::Tensor loss = net.loss(1) + (h.sin() * h).mean();
      loss.backward();
      descend(net);
      return observed(net, loss);
    };
  };
  const Observed plain = run_plain(program, 10);
  const SessionRun run = run_session(program, 10, unstored("none"));
  EXPECT_EQ(run.observed, plain);
  EXPECT_EQ(run.stats.phase, SessionPhase::enforce);
  EXPECT_EQ(run.stats.divergences, 0);
  // What was saved after the other backward is part of the forward: it was recomputed and compared.
  EXPECT_GE(run.stats.verified, 4);
}

// The graph of one thread's step lives on while another thread is inside the next step.
TEST_P(Threads, AGraphOfAnEarlierStepIsReadBesideTheNextStep) {
  const auto run = [](Session* session) {
    begin_program();
    const Net mine = two_layers();
    const Net theirs = two_layers();
    at::Tensor loss;
    {
      const auto step = session ? std::optional<Step>(session->step()) : std::nullopt;
      loss = mine.loss(1);
    }
    std::mutex mutex;
    std::condition_variable changed;
    int stage = 0;
    const auto reach = [&](int wanted, int next) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stage == wanted; });
      stage = next;
      changed.notify_all();
    };
    std::thread other([&] {
      at::set_num_threads(1);
      const auto step = session ? std::optional<Step>(session->step()) : std::nullopt;
      forget_gradients(theirs);
      const at::Tensor first = theirs.parameters[0].exp();
      reach(0, 1);
      reach(2, 3);
      (theirs.loss(1) + (first * first.sin()).mean()).backward();
    });
    reach(1, 1);
    loss.backward();
    at::Tensor more = mine.parameters[0].detach().exp();  // plain work of a thread that watches
    more.add_(1);
    reach(1, 2);
    other.join();
    std::vector<at::Tensor> seen{more};
    for (const Net* net : {&mine, &theirs}) {
      for (const at::Tensor& p : net->parameters) {
        seen.push_back(p.grad().clone());
      }
    }
    return seen;
  };
  const std::vector<at::Tensor> plain = run(nullptr);
  Session session(unstored("none"));
  const Chaos chaos(0.5, 3);
  const std::vector<at::Tensor> here = run(&session);
  ASSERT_EQ(here.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(here[i], plain[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(FrontEnds, Threads, ::testing::Values("dispatch_key", "record_function"),
                         [](const auto& front_end) { return std::string(front_end.param); });

// One after the other; while one lives, a second is refused by name.
TEST(Sessions, TwoInOneProcessInTurn) {
  const Program first = with_dropout();
  const Program second = training(two_layers);
  const Observed plain_first = run_plain(first, 9);
  const Observed plain_second = run_plain(second, 9);
  const std::string tight_first = std::to_string(smallest_budget(first) + 64 * 1024);
  const std::string tight_second = std::to_string(smallest_budget(second) + 64 * 1024);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run_session(first, 9, unstored(tight_first)).observed, plain_first);
    EXPECT_EQ(run_session(second, 9, unstored(tight_second)).observed, plain_second);
  }
}

}  // namespace
}  // namespace lowtide::testing
