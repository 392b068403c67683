// Kernels of an extension that torch does not see: what they write is never dropped.
#include "hard_program.h"

#include <torch/library.h>

#include "support/opaque_kernels.h"

namespace lowtide::testing {
namespace {

void scale_into(const at::Tensor& out, const at::Tensor& in, float factor) {
  opaque_scale(out.data_ptr<float>(), in.const_data_ptr<float>(), static_cast<size_t>(in.numel()),
               factor);
}

// Says that it reads its second argument; it overwrites both.
at::Tensor lying(const at::Tensor& x, const at::Tensor& scratch) {
  scale_into(scratch, x, 3);
  return x * 2;
}

TORCH_LIBRARY(lowtide_opaque_test, library) {
  library.def("lying(Tensor x, Tensor scratch) -> Tensor");
  library.impl("lying", c10::DispatchKey::CPU, TORCH_FN(lying));
}

struct Outcome {
  SessionRun ample;  // probe and verification without a limit
  SessionRun tight;  // at the smallest budget that is left then
};

// Both runs are right; the tight one drops what it may.
Outcome run_both(const Program& program) {
  const Observed plain = run_plain(program, 9);
  Outcome outcome;
  outcome.ample = run_session(program, 9, unstored("none"));
  EXPECT_EQ(outcome.ample.observed, plain);
  EXPECT_EQ(outcome.ample.stats.phase, SessionPhase::enforce);
  // Memory of the first steps suffices to verify: the budget holds for the plan that follows.
  const ScratchDirectory directory;
  SessionOptions stored = unstored("none");
  stored.store = true;
  stored.directory = directory.path();
  EXPECT_EQ(run_session(program, 9, stored).observed, plain);
  stored.budget = std::to_string(smallest_budget(program));
  outcome.tight = run_session(program, 9, stored);
  EXPECT_EQ(outcome.tight.observed, plain);
  EXPECT_EQ(outcome.tight.stats.steps_over_budget, 0);
  return outcome;
}

// The reasons of the storages that stay: any that contains the words.
bool kept_because(const Trace& trace, const std::string& words) {
  for (const TraceStorage& storage : trace.storages) {
    if (!storage.recomputable && storage.keep_reason.find(words) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST(Opaque, AKernelThatFillsEmptyMemory) {
  const Outcome outcome = run_both(training([] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor scale = at::empty({64, 96});
                 scale_into(scale, x, 0.25);
                 at::Tensor h = (x.mm(w) * scale).exp();
                 for (int i = 0; i < 6; ++i) {
                   h = (h * 0.5).sin().exp();
                 }
                 return (h * h.sin()).mean() + scale.sin().mean();
               }};
  }));
  EXPECT_EQ(outcome.ample.stats.mismatched, 0) << "kept from the start, not found by comparing";
  EXPECT_TRUE(kept_because(*outcome.ample.trace, "written by no operator that Lowtide saw"));
  EXPECT_GT(outcome.tight.steps.back().replayed_ops, 0) << "the rest is still dropped";
}

TEST(Opaque, AKernelThatOverwritesWhatAnOpHadFilled) {
  const Outcome outcome = run_both(training([] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor scale = torch::zeros({64, 96});
                 scale_into(scale, x, 0.25);
                 const at::Tensor h = (x.mm(w) * scale).exp();
                 const at::Tensor g = x.mm(w).sin();
                 return (h * h.sin()).mean() + (g * g.exp()).mean();
               }};
  }));
  EXPECT_GT(outcome.ample.stats.mismatched, 0);
  EXPECT_TRUE(kept_because(*outcome.ample.trace, "recomputed bytes differ"));
}

// What y was made from is changed in place afterwards; autograd never saved it.
TEST(Opaque, AKernelThatChangesTheInputOfAnOp) {
  const Outcome outcome = run_both(training([] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    const at::Tensor bias = torch::ones({64, 96});
    return Net{{w},
               [=](int) {
                 const at::Tensor y = (x.mm(w) + bias).exp();
                 scale_into(bias, bias, 0.25);
                 return (y * y.sin()).mean() + bias.mean();
               },
               {bias}};
  }));
  EXPECT_GT(outcome.ample.stats.mismatched, 0);
}

TEST(Opaque, AnOperatorWhoseSchemaLies) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("lowtide_opaque_test::lying", "")
                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  const Outcome outcome = run_both(training([op] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor scratch = torch::ones({64, 96});
                 const at::Tensor twice = op.call(x, scratch);
                 const at::Tensor h = (x.mm(w) + scratch * 0.1).exp();
                 return (h * h.sin() * twice).mean() + (scratch.sin() * h).mean();
               }};
  }));
  EXPECT_GT(outcome.ample.stats.mismatched, 0);
}

// Two storages over the same bytes: a write to one is none to the other, as far as torch knows.
TEST(Opaque, TwoStoragesOverTheSameBytes) {
  const Outcome outcome = run_both(training([] {
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor w = parameter({96, 96});
    return Net{{w}, [=](int) {
                 const at::Tensor bias = torch::ones({64, 96});
                 const at::Tensor twin = at::from_blob(bias.data_ptr(), {64, 96});
                 const at::Tensor y = (x.mm(w) + bias).exp();
                 twin.mul_(0.5);
                 const at::Tensor z = (y * 0.1 + bias).sin();
                 return (y * z).mean();
               }};
  }));
  EXPECT_GT(outcome.ample.stats.mismatched, 0);
}

}  // namespace
}  // namespace lowtide::testing
