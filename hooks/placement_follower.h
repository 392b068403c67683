// Follows a program's requests through a placement plan: which planned request the next one is.
//
// In sequence, per stream, by size (and op where both know it). What matches nothing is taken for
// an extra request, and the place stays where it is, until what comes next says otherwise: it may
// have stood for a planned one of another size (a batch that is larger for once), which shows where
// the plan goes on as many requests ahead; or planned ones were left out, which shows where two in
// a row are found together, up to kWindow ahead, and never on one size alone, which might be
// anybody's. The place moves forwards only. A step mark sets it right, whatever came before.
//
// No thread safety. Nothing is thrown after construction. The plan must outlive the follower.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hooks/device_backend.h"
#include "hooks/placement_plan.h"

namespace lowtide::hooks {

struct FollowedStep {  // between two marks
  int64_t requests = 0;
  int64_t followed = 0;  // of them, as planned
  int64_t resyncs = 0;
  bool exact = true;  // all as planned, none left out
};

class BandFollower {
 public:
  static constexpr size_t kWindow = 32;
  explicit BandFollower(const PlannedBand& band);

  // Null where the plan has no such request here.
  const PlannedRequest* next(int64_t bytes, int32_t op) noexcept {
    ++now_.requests;
    if (place_ == size_) [[unlikely]]
      enter_next_step();
    if (place_ < size_ && same(requests_[place_], bytes, op)) [[likely]] {
      missed_ = 0;
      ++now_.followed;
      return &requests_[place_++];
    }
    return look_ahead(bytes, op);
  }
  FollowedStep mark() noexcept;
  // Slots of requests to come, in order, at most as many as fit; the step that repeats comes again
  // after itself. How many were written.
  size_t slots_ahead(std::span<PlannedSlot> slots) const noexcept;

 private:
  static bool same(const PlannedRequest& planned, int64_t bytes, int32_t op) noexcept {
    return planned.bytes == bytes && (planned.op == op || planned.op < 0 || op < 0);
  }
  const PlannedRequest* look_ahead(int64_t bytes, int32_t op) noexcept;
  const PlannedRequest* resync(size_t place) noexcept;
  void enter(size_t step, size_t place) noexcept;
  void enter_next_step() noexcept;
  [[nodiscard]] size_t step_after(size_t marks) const noexcept;

  const PlannedBand& band_;
  const PlannedRequest* requests_ = nullptr;  // of the step
  size_t size_ = 0;
  size_t place_ = 0;
  size_t step_ = 0;
  size_t marks_ = 0;
  size_t missed_ = 0;         // requests in a row that matched nothing
  int64_t missed_bytes_ = 0;  // the last of them
  FollowedStep now_;
};

class ProgramFollower {
 public:
  struct Answer {
    int32_t band = -1;                        // -1: the plan has no such stream
    const PlannedRequest* request = nullptr;  // null: it has no such request here
  };

  explicit ProgramFollower(const PlacementPlan& plan);
  Answer next(DeviceStream stream, int64_t bytes, int32_t op) noexcept {
    const int32_t band = band_of(stream);
    if (band < 0) [[unlikely]] {
      ++foreign_requests_;
      return {};
    }
    return {band, followers_[static_cast<size_t>(band)].next(bytes, op)};
  }
  // The step that ends, of all streams together.
  FollowedStep mark() noexcept;
  size_t slots_ahead(int32_t band, std::span<PlannedSlot> slots) const noexcept {
    return followers_[static_cast<size_t>(band)].slots_ahead(slots);
  }
  // A stream that was not seen before becomes that of the plan's next band.
  [[nodiscard]] int32_t band_of(DeviceStream stream) noexcept {
    for (size_t i = 0; i < known_; ++i) {
      if (streams_[i] == stream) return static_cast<int32_t>(i);
    }
    if (known_ == streams_.size()) return -1;
    streams_[known_] = stream;
    return static_cast<int32_t>(known_++);
  }
  // Of the bands that have one so far.
  [[nodiscard]] const std::vector<DeviceStream>& streams() const noexcept { return streams_; }
  [[nodiscard]] size_t known_streams() const noexcept { return known_; }

 private:
  std::vector<BandFollower> followers_;
  std::vector<DeviceStream> streams_;  // the first known_ of them are set
  size_t known_ = 0;
  int64_t foreign_requests_ = 0;  // in this step, of other streams
};

}  // namespace lowtide::hooks
