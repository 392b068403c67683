// The rule by which a step of an untouched program ends: it is complete once a leaf that has a
// gradient was written in place (the optimizer ran), and the next saved tensor belongs to the next
// step. Engine runs before that write - accumulation, gradient penalties, partial gradients - are
// of one step. A program that never writes a leaf in place (it replaces its parameters) would have
// one endless step: after `kMaxRuns` engine runs without such a write each engine run completes a
// step.
//
// No torch, no thread safety: used by the thread that is in the step.
#pragma once

namespace lowtide::runtime {

class StepBoundary {
 public:
  static constexpr int kMaxRuns = 64;

  void begin_step() {
    runs_ = 0;
    complete_ = false;
  }
  void leaf_written() {
    complete_ = true;
    by_runs_ = false;
  }
  void backward_ended() {
    ++runs_;
    by_runs_ |= runs_ >= kMaxRuns;
    complete_ |= by_runs_;
  }
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] bool had_backward() const { return runs_ > 0; }

 private:
  int runs_ = 0;
  bool complete_ = false;
  bool by_runs_ = false;
};

}  // namespace lowtide::runtime
