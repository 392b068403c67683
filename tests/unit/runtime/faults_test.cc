// A step that fails, at every place: no crash, no bytes left behind, and the next step is right.
#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <random>
#include <stdexcept>

#include "core/error.h"
#include "hooks/torch_cpu_memory.h"
#include "put_allocator.h"
#include "random/judge.h"
#include "runtime/variant.h"

namespace lowtide::testing {
namespace {

// Fails the chosen allocation, or it and all after it, while it is armed.
class FailingAllocator : public c10::Allocator {
 public:
  FailingAllocator() : below_(c10::GetCPUAllocator()) { put_cpu_allocator(this); }
  ~FailingAllocator() override { put_cpu_allocator(below_); }
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;

  void arm(int64_t nth, bool for_good) {
    seen_ = 0;
    nth_ = nth;
    for_good_ = for_good;
  }
  void disarm() { nth_ = 0; }
  [[nodiscard]] int64_t seen() const { return seen_; }

  c10::DataPtr allocate(size_t bytes) override {
    ++seen_;
    const bool fails = nth_ > 0 && (seen_ == nth_ || (for_good_ && seen_ > nth_));
    TORCH_CHECK_WITH(OutOfMemoryError, !fails, "injected at allocation ", seen_);
    return below_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* below_;
  int64_t seen_ = 0;
  int64_t nth_ = 0;
  bool for_good_ = false;
};

// A program whose every step begins from the same state, whatever happened in the one before.
class Restartable {
 public:
  explicit Restartable(RandomProgram program) : program_(std::move(program)) {
    at::manual_seed(program_.seed);
    machine_ = std::make_unique<Machine>();
    for (const at::Tensor& tensor : state()) {
      beginning_.push_back(tensor.detach().clone());
    }
  }

  // Under the session, null = plainly; `extra`: an instruction put in at `position`.
  std::vector<at::Tensor> step(Session* session, const InstructionKind* extra = nullptr,
                               size_t position = 0) {
    const std::vector<at::Tensor> now = state();
    for (size_t i = 0; i < now.size(); ++i) {
      now[i].data().copy_(beginning_[i]);
    }
    for (const at::Tensor& leaf : machine_->leaves()) {
      leaf.mutable_grad() = at::Tensor();
    }
    machine_->generator.set_current_seed(17);
    machine_->end();
    at::manual_seed(program_.seed);
    std::vector<Instruction> body = program_.body;
    if (extra != nullptr) {
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(position % (body.size() + 1)),
                  {extra, {static_cast<uint8_t>(position), 0, 0}});
    }
    const std::optional<Step> guard = session ? std::optional<Step>(session->step()) : std::nullopt;
    return run_step(*machine_, body);
  }
  void end() {
    machine_->end();
    for (const at::Tensor& leaf : machine_->leaves()) {
      leaf.mutable_grad() = at::Tensor();
    }
  }
  [[nodiscard]] const RandomProgram& program() const { return program_; }

 private:
  [[nodiscard]] std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> all = machine_->leaves();
    const std::vector<at::Tensor> buffers = machine_->buffers();
    all.insert(all.end(), buffers.begin(), buffers.end());
    return all;
  }

  RandomProgram program_;
  std::unique_ptr<Machine> machine_;
  std::vector<at::Tensor> beginning_;
};

// Many kinds of saves, draws, running statistics, writes, and two backwards.
RandomProgram rich_program() {
  return from_text(
      "5: mm 0 0 0; batch_norm 3 0 0; gelu 4 0 1; dropout 5 0 0; lstm 6 0 0; chain_ 3 0 1; "
      "own_function 4 5 0; scale_data_add_ 0 0 0; read_scale 6 0 0; attention_dropout 6 0 1; "
      "backward 5 0 0; average_update 4 0 0; mul 5 6 0; softmax 6 0 0; gradient_of_gradient 6 3 0; "
      "chain_ 6 0 0; convolution 4 0 0; noise 6 0 0; linear 5 0 1; batch_norm 6 0 0; exp 5 0 0");
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = at::equal(a[i], b[i]);
  }
  return same;
}

// Halfway from the smallest budget to keep-all, with a plan in force.
class Enforced {
 public:
  // `room`: bytes beyond that.
  explicit Enforced(const RandomProgram& program, int64_t room = 0) : restartable(program) {
    for (const at::Tensor& seen : restartable.step(nullptr)) {
      expected.push_back(seen.detach().clone());
    }
    SessionOptions options;
    options.directory = directory_.path();
    options.warmup_steps = 1;
    options.probe_steps = 1;
    options.budget = "none";
    {
      Session probe(options);
      for (int i = 0; i < 8 && probe.phase() != SessionPhase::enforce; ++i) {
        (void)restartable.step(&probe);
      }
      (void)restartable.step(&probe);  // the first enforced one stores the verified plan
      const Trace& trace = *probe.trace();
      const auto memory = hooks::make_torch_cpu_memory();
      const planner::Frontier frontier =
          planner::build_frontier(trace, runtime::planner_options(*memory, 0));
      options.budget = std::to_string(budgets_of(trace, frontier).at_percent(50) + room);
    }
    restartable.end();
    session = std::make_unique<Session>(options);  // finds the trace
    for (int i = 0; i < 8 && session->phase() != SessionPhase::enforce; ++i) {
      (void)right_step();
    }
  }

  // A right step; false where its bits differ. Leaves nothing in use.
  bool right_step() {
    const bool same = equal(restartable.step(session.get()), expected);
    restartable.end();
    return same;
  }

  Restartable restartable;
  std::vector<at::Tensor> expected;
  std::unique_ptr<Session> session;

 private:
  ScratchDirectory directory_;
};

class Faults : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("LOWTIDE_FRONT_END", GetParam(), 1); }
  void TearDown() override { unsetenv("LOWTIDE_FRONT_END"); }
};

TEST_P(Faults, EachOfTheFirstTwoHundredAllocationsOfAStep) {
  Enforced run(rich_program());
  ASSERT_EQ(run.session->phase(), SessionPhase::enforce);
  FailingAllocator allocator;
  allocator.arm(0, false);
  ASSERT_TRUE(run.right_step());
  ASSERT_GT(allocator.seen(), 200);
  ASSERT_GT(run.session->last_step().replayed_ops, 0);
  const int64_t base = bytes_in_use();
  int failed = 0;
  for (int64_t nth = 1; nth <= 200; ++nth) {
    allocator.arm(nth, /*for_good=*/nth % 2 == 0);
    try {
      // What fails may be something that Lowtide can do without: then the step is right.
      EXPECT_TRUE(equal(run.restartable.step(run.session.get()), run.expected)) << nth;
    } catch (const c10::OutOfMemoryError&) {
      ++failed;
    }
    allocator.disarm();
    run.restartable.end();
    ASSERT_TRUE(run.right_step()) << "after allocation " << nth;
    ASSERT_EQ(bytes_in_use(), base) << "after allocation " << nth;
  }
  EXPECT_GE(failed, 190);
}

struct ThrowsInBackward : public torch::autograd::Function<ThrowsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 0.5;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    (void)context->get_saved_variables()[0];
    throw std::runtime_error("injected");
  }
};

at::Tensor throws_after_work(const at::Tensor& x) {
  const at::Tensor y = x.sin();
  throw std::runtime_error("injected");
}

TORCH_LIBRARY(lowtide_faults_test, library) { library.def("throws(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lowtide_faults_test, CPU, library) {
  library.impl("throws", &throws_after_work);
}

constexpr InstructionKind kThrowers[] = {
    {"throws_between_ops", 0, false,
     [](Machine&, Operands) { throw std::runtime_error("injected"); }},
    {"throws_in_an_op", 0, false,
     [](Machine& m, Operands o) {
       static const auto op = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("lowtide_faults_test::throws", "")
                                  .typed<at::Tensor(const at::Tensor&)>();
       m.push(op.call(m.get(o.a)), 0);
     }},
    {"throws_in_backward", 0, false,
     [](Machine& m, Operands o) { m.push(ThrowsInBackward::apply(m.get(o.a)), o.b); }},
};

TEST_P(Faults, TwoHundredExceptionsInForwardAndBackward) {
  std::mt19937_64 random(11);
  int thrown = 0;
  int thrown_in_backward = 0;
  for (uint64_t seed = 101; thrown < 200; ++seed) {
    ASSERT_LT(seed, 150U);
    // Torch's queue keeps what an aborted backward left, until the next one.
    Enforced run(repair(generate(seed)), /*room=*/512 * 1024);
    ASSERT_TRUE(run.right_step()) << "seed " << seed;
    const int64_t base = bytes_in_use();
    for (int i = 0; i < 25; ++i) {
      const InstructionKind& thrower = kThrowers[random() % std::size(kThrowers)];
      const size_t position = random();
      bool threw = false;
      try {
        (void)run.restartable.step(run.session.get(), &thrower, position);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        threw = text.find("injected") != std::string::npos;
        // One more tensor shifts the others: a write may then hit what autograd has saved, and the
        // plan's budget may be too small; both are refused by name.
        EXPECT_TRUE(threw || text.find("inplace") != std::string::npos ||
                    text.find("Lowtide: cannot allocate") != std::string::npos)
            << text;
      }
      thrown += threw ? 1 : 0;
      thrown_in_backward += threw && &thrower == &kThrowers[2] ? 1 : 0;
      run.restartable.end();
      ASSERT_TRUE(run.right_step()) << "seed " << seed << ", " << thrower.name << " " << position;
      ASSERT_EQ(bytes_in_use(), base) << "seed " << seed << ", " << thrower.name;
    }
  }
  EXPECT_GT(thrown_in_backward, 30);
}

INSTANTIATE_TEST_SUITE_P(FrontEnds, Faults, ::testing::Values("dispatch_key", "record_function"),
                         [](const auto& front_end) { return std::string(front_end.param); });

}  // namespace
}  // namespace lowtide::testing
