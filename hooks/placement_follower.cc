#include "hooks/placement_follower.h"

#include <algorithm>
#include <utility>

namespace lowtide::hooks {

BandFollower::BandFollower(const PlannedBand& band) : band_(band) { enter(0, 0); }

void BandFollower::enter(size_t step, size_t place) noexcept {
  step_ = step;
  requests_ = band_.steps[step].requests.data();
  size_ = band_.steps[step].requests.size();
  place_ = std::min(place, size_);
  missed_ = 0;
}

// The plan's step that has begun when so many marks were set.
size_t BandFollower::step_after(size_t marks) const noexcept {
  return std::min(marks, band_.steps.size() - 1);
}

// Behind a step's last request lies the next step, where the mark between them was set already.
void BandFollower::enter_next_step() noexcept {
  const auto mark_at = static_cast<size_t>(band_.steps[step_].mark_at);
  if (marks_ > 0 && mark_at < size_ && step_ == step_after(marks_ - 1)) {
    enter(step_after(marks_), 0);
  }
}

const PlannedRequest* BandFollower::look_ahead(int64_t bytes, int32_t op) noexcept {
  now_.exact = false;
  if (missed_ > 0) {
    const size_t beside = place_ + missed_;
    if (beside < size_ && same(requests_[beside], bytes, op)) return resync(beside);
    const size_t end = std::min(size_, place_ + kWindow);
    for (size_t i = place_ + 1; i < end; ++i) {
      if (requests_[i - 1].bytes == missed_bytes_ && same(requests_[i], bytes, op)) {
        return resync(i);
      }
    }
  }
  ++missed_;
  missed_bytes_ = bytes;
  return nullptr;
}

const PlannedRequest* BandFollower::resync(size_t place) noexcept {
  place_ = place + 1;
  missed_ = 0;
  ++now_.resyncs;
  ++now_.followed;
  return &requests_[place];
}

size_t BandFollower::slots_ahead(std::span<PlannedSlot> slots) const noexcept {
  size_t count = 0;
  const auto add = [&](const std::vector<PlannedRequest>& requests, size_t from) {
    for (size_t i = from; i < requests.size() && count < slots.size(); ++i) {
      if (requests[i].slot >= 0)
        slots[count++] = band_.slots[static_cast<size_t>(requests[i].slot)];
    }
  };
  add(band_.steps[step_].requests, place_);
  for (size_t step = step_ + 1; step < band_.steps.size(); ++step)
    add(band_.steps[step].requests, 0);
  add(band_.steps.back().requests, 0);
  return count;
}

FollowedStep BandFollower::mark() noexcept {
  const size_t ending = step_after(marks_++);
  const auto mark_at = static_cast<size_t>(band_.steps[ending].mark_at);
  if (step_ != ending || place_ != mark_at) now_.exact = false;
  if (mark_at == band_.steps[ending].requests.size()) {
    enter(step_after(marks_), 0);
  } else {
    enter(ending, mark_at);
  }
  return std::exchange(now_, {});
}

ProgramFollower::ProgramFollower(const PlacementPlan& plan) : streams_(plan.bands.size()) {
  followers_.reserve(plan.bands.size());
  for (const PlannedBand& band : plan.bands) followers_.emplace_back(band);
}

FollowedStep ProgramFollower::mark() noexcept {
  FollowedStep sum;
  sum.requests = std::exchange(foreign_requests_, 0);
  sum.exact = sum.requests == 0;
  for (BandFollower& follower : followers_) {
    const FollowedStep step = follower.mark();
    sum.requests += step.requests;
    sum.followed += step.followed;
    sum.resyncs += step.resyncs;
    sum.exact = sum.exact && step.exact;
  }
  return sum;
}

}  // namespace lowtide::hooks
