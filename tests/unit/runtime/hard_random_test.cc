// Random programs: reads, in-place writes, views, partly filled buffers, draws, in any order.
//
// Programs that autograd itself refuses (a saved tensor changed in place) are passed over.
#include <random>

#include "hard_program.h"

namespace lowtide::testing {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 96;

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed)
      : seed_(seed),
        batch_(torch::randn({kRows, kColumns})),
        weight_(parameter({kColumns, kColumns})),
        buffer_(torch::randn({kRows, kColumns})) {}

  [[nodiscard]] Net net() const {
    return {{weight_}, [program = *this](int) mutable { return program.loss(); }, {buffer_}};
  }

 private:
  at::Tensor loss() {
    random_.seed(seed_);
    pool_ = {batch_.mm(weight_), batch_, batch_.mm(weight_).tanh()};
    const int length = 10 + choose(30);
    for (int i = 0; i < length; ++i) {
      write(pool_[choose(static_cast<int>(pool_.size()))]);
      pool_.push_back(make(whole(), whole()));
      if (pool_.size() > 6) {
        pool_.erase(pool_.begin() + choose(static_cast<int>(pool_.size()) - 1));
      }
    }
    at::Tensor sum = (pool_.back() * weight_.sum()).mean();
    for (const at::Tensor& tensor : pool_) {
      sum = sum + tensor.mean() * 0.1;
    }
    pool_.clear();
    return sum;
  }

  int choose(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  at::Tensor whole() { return pool_[choose(static_cast<int>(pool_.size()))]; }

  // Only now and then: most writes hit a saved tensor.
  void write(at::Tensor target) {
    const bool written_by_program = target.grad_fn() != nullptr;
    switch (choose(24)) {
      case 0:
        if (written_by_program) target.mul_(0.9);
        break;
      case 1:
        if (written_by_program) target.slice(0, 0, 20).add_(0.1);
        break;
      case 2:
        if (written_by_program) target.sigmoid_();
        break;
      case 3:
        if (written_by_program) target.clamp_(-1, 1);
        break;
      case 4:
        buffer_.data().add_(0.01);
        break;
      case 5:
        buffer_.mul_(0.9).add_(target.detach(), 0.1);
        break;
      case 6:
        if (!target.requires_grad()) target.add_(0.25);
        break;
      case 7:
        target.detach().select(1, 3).zero_();
        break;
      default:
        break;
    }
  }

  at::Tensor make(const at::Tensor& a, const at::Tensor& b) {
    const torch::AutoGradMode mode(choose(8) != 0);
    switch (choose(16)) {
      case 0:
        return a.sin();
      case 1:
        return a * b;
      case 2:
        return a.tanh().mm(weight_);
      case 3:
        return a + b * 0.5;
      case 4:
        return at::dropout(a, 0.2, true);
      case 5:
        return a.t().contiguous().t();
      case 6:
        return a + buffer_;
      case 7:
        return a.sigmoid() * buffer_.data();
      case 8:
        return at::empty({kRows, kColumns}).copy_(a);
      case 9: {
        at::Tensor half = at::zeros({kRows, kColumns});
        half.slice(1, 0, 48).copy_(a.slice(1, 48, 96));
        return half;
      }
      case 10:
        return a.clamp(-1, 1).exp();
      case 11:
        return a * torch::rand({kRows, kColumns});
      case 12:
        return a.detach().clone().sin_();
      case 13:
        return at::cat({a.slice(0, 0, 32), b.slice(0, 32, 64)}, 0);
      case 14:
        return a.softmax(1);
      default:
        return b.clone().masked_fill_(a > 0.1, 0.3);
    }
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  at::Tensor batch_;
  at::Tensor weight_;
  at::Tensor buffer_;
  std::vector<at::Tensor> pool_;
};

TEST(HardRandom, ProgramsOfFortySeeds) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Program program = training([seed] { return RandomProgram(seed).net(); });
    try {
      (void)run_plain(program, 2);
    } catch (const c10::Error&) {
      continue;
    }
    EXPECT_EQ(differences(program), "") << "seed " << seed;
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

}  // namespace
}  // namespace lowtide::testing
