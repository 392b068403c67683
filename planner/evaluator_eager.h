// Incremental evaluation of eager traces (rules: simulator.h).
//
// Instants of the time axis are the steps of the problem. Each storage has a timeline (when it is
// in memory), which follows from its own events and choice and from the replays that adopt it; each
// unpack has a replay, which follows from the timelines of the storages it looks at, before its
// step. So a change is carried through forwards in time: timelines that change wake the later
// replays that looked at them, and replays that adopt otherwise change timelines after them.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/eager_steps.h"
#include "planner/evaluator.h"
#include "planner/problem.h"
#include "planner/time_axis.h"

namespace lowtide::planner {

class EagerEvaluator final : public Evaluator {
 public:
  explicit EagerEvaluator(const Problem& problem);

  void set(StorageId s, Choice choice) override;
  [[nodiscard]] int64_t peak_bytes() override { return axis_.max(); }
  [[nodiscard]] int64_t extra_ns() override { return extra_ns_; }
  [[nodiscard]] int64_t excess(int64_t level) override { return axis_.excess(level); }
  [[nodiscard]] int64_t work() const override { return work_; }

 private:
  struct Interval {  // in memory from within step `begin` to within step `end`
    int32_t begin = 0;
    int32_t end = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  };
  struct Timeline {
    std::vector<Interval> intervals;
    std::vector<int32_t> adopted;   // steps of replays that leave it behind, rising
    std::vector<int32_t> replayed;  // own unpacks that find it missing, rising
    std::vector<int32_t> watchers;  // unpacks whose replay has looked at it
  };
  struct Replay {  // of one unpack; empty where nothing is missing
    int64_t peak_bytes = 0;
    int64_t ns = 0;
    std::vector<StorageId> adopted;  // rising
  };
  struct Need {  // as in the simulator: a storage inside the replay being told
    uint32_t epoch = 0;
    int32_t version = 0;
    int32_t written = 0;
    OpId last_use = kNone;
    bool buffer = false;
  };

  [[nodiscard]] bool dropped(StorageId s) const {
    return table_.action[static_cast<size_t>(s)] != Action::save;
  }
  [[nodiscard]] bool present(StorageId s, int32_t step) const;
  [[nodiscard]] bool kept_by_saves(StorageId s, int32_t step) const;
  void retell(StorageId s, int32_t after);
  void wake(int32_t step);
  void wake_watchers(StorageId s, int32_t after);
  void settle();
  void replace(int32_t step, const Replay& next);
  void tell_replay(int32_t step, Replay& replay);
  Need& need(StorageId s, int32_t version);
  void release_after(OpId op, StorageId s, StorageId target, int32_t step, int64_t& live,
                     Replay& replay);
  void watch(StorageId s, int32_t step);
  [[nodiscard]] int64_t bytes(StorageId s) const { return problem_.size(s).rounded; }

  const Problem& problem_;
  const EagerSteps steps_;
  std::vector<Timeline> timelines_;  // per storage
  std::vector<Replay> replays_;      // per step
  std::vector<char> awake_;          // per step: in queue_
  std::vector<int32_t> queue_;       // heap, the first step first
  TimeAxis axis_;
  int64_t extra_ns_ = 0;
  int64_t work_ = 0;
  std::vector<Need> needs_;
  std::vector<uint32_t> op_epoch_;
  uint32_t epoch_ = 0;
  std::vector<OpId> ops_;  // of the replay being told
  Replay scratch_;
  Timeline told_;
};

}  // namespace lowtide::planner
