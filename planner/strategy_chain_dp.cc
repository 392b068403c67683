// Rotor (Beaumont et al. 2019, "Optimal checkpointing for heterogeneous chains"): the fastest
// schedule of a chain of stages for a memory, by dynamic programming over discretized memory.
//
//   C(s, t, m) = min( f(s) + C(s + 1, t, m - all(s)),                        keep all of stage s
//                     min over r: f(s..r-1) + C(r, t, m - in(r)) + C(s, r - 1, m) )   checkpoint r
//
// with f the forward time, all(s) the saved bytes of a stage, in(r) the bytes that running from r
// on needs. Backward times are the same in every schedule and left out. As in the paper the memory
// has a few hundred slots and sizes are rounded up to them. One table answers every memory; each
// answer becomes a plan and is judged by the simulator, since a chain of stages is not all of a
// step.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/error.h"
#include "planner/block_chain.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

constexpr int64_t kInfeasible = std::numeric_limits<int64_t>::max() / 4;
constexpr int kSlots = 200;
// The table is filled in stages^3 * slots / 6 steps.
constexpr int64_t kChainWork = 600'000'000;
constexpr size_t kStages = 400;

class ChainProgram {
 public:
  explicit ChainProgram(const BlockChain& chain) : stages_(chain.stages()) {
    const auto n = static_cast<int64_t>(stages_.size());
    slots_ = static_cast<int>(std::clamp<int64_t>(6 * kChainWork / (n * n * n), 8, kSlots));
    int64_t total = 0;
    for (const Stage& stage : stages_) total += stage.interior_bytes;
    slot_bytes_ = std::max<int64_t>(1, (total + slots_ - 1) / slots_);
    // Rounded up stage by stage, all of the chain takes a few more.
    const int slots = slots_;
    slots_ = 0;
    for (const Stage& stage : stages_) slots_ += std::min(in_slots(stage.interior_bytes), slots);
    best_.resize(static_cast<size_t>(n * n * (slots_ + 1)), kInfeasible);
    choice_.resize(best_.size(), kNoChoice);
    for (int length = 1; length <= n; ++length) {
      for (int s = 0; s + length <= n; ++s) fill(s, s + length - 1);
    }
  }

  [[nodiscard]] int slots() const { return slots_; }
  [[nodiscard]] bool feasible(int slots) const {
    return best_[index(0, static_cast<int>(stages_.size()) - 1, slots)] < kInfeasible;
  }
  void write(BlockSchedule& schedule, int slots) const {
    write(schedule, 0, static_cast<int>(stages_.size()) - 1, slots, 0);
  }

 private:
  static constexpr int kMany = 1 << 20;  // slots: more than there ever are
  static constexpr int16_t kNoChoice = -2;
  static constexpr int16_t kKeepAll = -1;  // else the stage to checkpoint

  [[nodiscard]] const Stage& stage(int i) const { return stages_[static_cast<size_t>(i)]; }
  [[nodiscard]] size_t index(int s, int t, int m) const {
    return (static_cast<size_t>(s) * stages_.size() + static_cast<size_t>(t)) *
               static_cast<size_t>(slots_ + 1) +
           static_cast<size_t>(m);
  }
  [[nodiscard]] int in_slots(int64_t bytes) const {
    return static_cast<int>(std::min<int64_t>((bytes + slot_bytes_ - 1) / slot_bytes_, kMany));
  }

  void fill(int s, int t) {
    const int all = in_slots(stage(s).interior_bytes);
    for (int m = 0; m <= slots_; ++m) {
      int64_t& best = best_[index(s, t, m)];
      int16_t& choice = choice_[index(s, t, m)];
      if (all <= m) {
        const int64_t rest = s == t ? 0 : best_[index(s + 1, t, m - all)];
        if (rest < kInfeasible) {
          best = stage(s).recompute_ns + rest;
          choice = kKeepAll;
        }
      }
      int64_t forward = stage(s).recompute_ns;
      for (int r = s + 1; r <= t; ++r) {
        const int left = m - in_slots(stage(r).input_bytes);
        if (left >= 0) {
          const int64_t right_ns = best_[index(r, t, left)];
          const int64_t left_ns = best_[index(s, r - 1, m)];
          if (right_ns < kInfeasible && left_ns < kInfeasible &&
              forward + right_ns + left_ns < best) {
            best = forward + right_ns + left_ns;
            choice = static_cast<int16_t>(r);
          }
        }
        forward += stage(r).recompute_ns;
      }
    }
  }

  void write(BlockSchedule& schedule, int s, int t, int m, int level) const {
    for (; s <= t; ++s) {
      const int16_t choice = choice_[index(s, t, m)];
      if (choice == kKeepAll) {
        schedule.set_interior(static_cast<size_t>(s), level);
        m -= in_slots(stage(s).interior_bytes);
        continue;
      }
      schedule.checkpoint(static_cast<size_t>(s), static_cast<size_t>(choice), level);
      schedule.checkpoint(static_cast<size_t>(choice), static_cast<size_t>(t) + 1, level);
      write(schedule, s, choice - 1, m, level + 1);
      m -= in_slots(stage(choice).input_bytes);
      s = choice - 1;
    }
  }

  const std::vector<Stage>& stages_;
  int slots_ = 0;
  int64_t slot_bytes_ = 1;
  std::vector<int64_t> best_;
  std::vector<int16_t> choice_;
};

}  // namespace

void explore_chain_dp(const Simulator& simulator, std::string_view /*argument*/, Archive& archive) {
  const BlockChain chain(simulator, "chain_dp");
  if (chain.stages().size() > kStages) {
    throw InvalidInput("strategy \"chain_dp\" is cubic in the stages of a chain and takes up to " +
                       std::to_string(kStages) + ", not " + std::to_string(chain.stages().size()) +
                       "; mark larger blocks or use \"greedy\"");
  }
  const ChainProgram program(chain);
  for (int slots = program.slots(); slots >= 0 && program.feasible(slots); --slots) {
    BlockSchedule schedule(chain);
    program.write(schedule, slots);
    schedule.offer(simulator, "chain_dp", archive);
  }
}

}  // namespace lowtide::planner
