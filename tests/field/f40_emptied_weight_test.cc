// F40: a frozen weight whose storage is emptied after the forward and refilled before its use.
#include "core/error.h"
#include "hard_program.h"

namespace lowtide::testing {
namespace {

// The bytes go and come back, as sharded training does with gathered parameters.
class Gathered {
 public:
  explicit Gathered(const at::Tensor& weight) : weight_(weight), shard_(weight.clone()) {}
  void release() {
    weight_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr());
    weight_.storage().unsafeGetStorageImpl()->set_nbytes(0);
  }
  void gather() {
    const at::Tensor copy = shard_.clone();
    c10::StorageImpl* from = copy.storage().unsafeGetStorageImpl();
    weight_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(
        from->mutable_data(), new at::Tensor(copy),
        [](void* owner) { delete static_cast<at::Tensor*>(owner); }, at::kCPU));
    weight_.storage().unsafeGetStorageImpl()->set_nbytes(from->nbytes());
  }

 private:
  at::Tensor weight_;
  at::Tensor shard_;
};

Program gathered_around_use(bool before_backward) {
  return [before_backward]() -> StepFunction {
    begin_program();
    const at::Tensor x = torch::randn({64, 96});
    const at::Tensor bias = torch::randn({64, 96});
    auto gathered = std::make_shared<Gathered>(bias);
    const Net net{{parameter({96, 96})}, nullptr};
    return [=](int) {
      forget_gradients(net);
      at::Tensor h = (x.mm(net.parameters[0]) + bias).exp();
      const at::Tensor loss = (h * h.sin()).mean();
      h.reset();
      const at::Tensor pressure = torch::zeros({64, 96});
      gathered->release();
      if (before_backward) gathered->gather();
      loss.backward();
      if (!before_backward) gathered->gather();
      descend(net);
      return observed(net, loss);
    };
  };
}

TEST(Field, F40RefilledBeforeBackwardIsRight) {
  EXPECT_EQ(differences(gathered_around_use(true)), "");
}

TEST(Field, F40StillEmptyIsKeptAfterVerificationOrRefusedByName) {
  const Program program = gathered_around_use(false);
  const Observed plain = run_plain(program, 12);
  SessionOptions options;
  options.store = false;
  options.budget = "none";
  const SessionRun run = run_session(program, 12, options);
  EXPECT_EQ(run.observed, plain);
  EXPECT_GT(run.stats.mismatched, 0);
  const StepFunction step_function = program();
  Session session(options);
  const Chaos chaos(1, 3);
  try {
    const Step step = session.step();
    step_function(1);
    ADD_FAILURE() << "the emptied input went unnoticed";
  } catch (const InternalError& error) {
    EXPECT_NE(error.message().find("resized after the forward pass"), std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace lowtide::testing
