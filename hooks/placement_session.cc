#include "hooks/placement_session.h"

#include <mutex>
#include <utility>

#include "core/error.h"
#include "hooks/device_pool.h"

namespace lowtide::hooks {
const char* to_string(PlacementState state) noexcept {
  switch (state) {
    case PlacementState::off:
      return "off";
    case PlacementState::shadow:
      return "shadow";
    case PlacementState::ready:
      return "ready";
    case PlacementState::waiting:
      return "waiting";
    case PlacementState::engaged:
      return "engaged";
    case PlacementState::gaps:
      return "gaps";
  }
  return "unknown";
}

// --- Requests ---------------------------------------------------------------------------------

void* PlacementSession::allocate(size_t bytes, DeviceStream stream, int32_t op) noexcept {
  if (bytes > static_cast<size_t>(PlacementPlan::kMostBytes)) return nullptr;
  ArenaRequest request{bytes, static_cast<int64_t>(DevicePool::rounded(bytes)), stream, op, -1};
  const std::lock_guard lock(lock_);
  return follower_ == nullptr ? nullptr : serve(request);
}

void* PlacementSession::serve(ArenaRequest& request) noexcept {
  ++counts_.requests;
  if (state_.load(std::memory_order_relaxed) == PlacementState::gaps) {
    arena_->collect();
    request.band = follower_->band_of(request.stream);
    return serve_gap(request);
  }
  const auto [band, planned] = follower_->next(request.stream, request.rounded_bytes, request.op);
  request.band = band;
  if (arena_ == nullptr) return nullptr;
  arena_->collect();
  return serve_planned(request, planned);
}

void* PlacementSession::serve_planned(ArenaRequest& request,
                                      const PlannedRequest* planned) noexcept {
  if (planned != nullptr) {
    if (planned->slot < 0) {
      ++counts_.unplanned;
      ++counts_.hits;
      return nullptr;
    }
    const auto& slots = plan_->bands[static_cast<size_t>(request.band)].slots;
    for (int32_t i = 0; i < planned->slots; ++i) {
      const PlannedSlot& slot = slots[static_cast<size_t>(planned->slot + i)];
      if (void* const address = arena_->take(request, slot.offset)) {
        ++counts_.hits;
        return address;
      }
    }
    ++counts_.busy_slots;
  }
  return serve_gap(request);
}

void* PlacementSession::serve_gap(const ArenaRequest& request) noexcept {
  void* address = nullptr;
  if (request.band >= 0 && state_.load(std::memory_order_relaxed) == PlacementState::engaged) {
    const size_t ahead = follower_->slots_ahead(request.band, slots_ahead_);
    address = arena_->take_gap(request, {slots_ahead_.data(), ahead});
  } else if (request.band >= 0) {
    address = arena_->take_gap(request);
  }
  if (address != nullptr) {
    ++counts_.gap_fallbacks;
  } else {
    ++counts_.native_fallbacks;
    counts_.native_bytes += request.rounded_bytes;
  }
  return address;
}

void* PlacementSession::allocate_in_gap(size_t bytes, DeviceStream stream, int32_t op) noexcept {
  if (bytes > static_cast<size_t>(PlacementPlan::kMostBytes)) return nullptr;
  ArenaRequest request{bytes, static_cast<int64_t>(DevicePool::rounded(bytes)), stream, op, -1};
  const std::lock_guard lock(lock_);
  if (arena_ == nullptr) return nullptr;
  arena_->collect();
  request.band = follower_->band_of(stream);
  void* const address = request.band < 0 ? nullptr : arena_->take_gap(request);
  if (address != nullptr) ++counts_.late_gaps;
  return address;
}

void PlacementSession::on_allocated(const ArenaBlock& block) noexcept {
  observer_.on_allocated(block);
  if (recorder_.recording()) [[unlikely]]
    recorder_.allocated(block.base, block.requested, block.stream, block.op);
}

void PlacementSession::on_completed(const ArenaBlock& block) noexcept {
  if (recorder_.recording()) [[unlikely]]
    recorder_.freed(block.base);
  observer_.on_completed(block);
}

bool PlacementSession::free(void* address) noexcept {
  const std::lock_guard lock(lock_);
  if (arena_ != nullptr && arena_->free(address)) [[likely]]
    return true;
  ++counts_.invalid_frees;
  return false;
}

bool PlacementSession::use_on(void* address, DeviceStream stream) noexcept {
  const std::lock_guard lock(lock_);
  return arena_ != nullptr && arena_->use_on(address, stream);
}

// --- Steps ------------------------------------------------------------------------------------

void PlacementSession::mark() noexcept {
  if (recorder_.recording()) recorder_.mark();
  const std::lock_guard lock(lock_);
  if (arena_ != nullptr) arena_->collect();
  if (follower_ == nullptr) return;
  const FollowedStep step = follower_->mark();
  if (step.requests > 0) judge(step);
}

void PlacementSession::judge(const FollowedStep& step) noexcept {
  ++counts_.steps;
  counts_.resyncs += step.resyncs;
  const int64_t hits = counts_.hits - std::exchange(hits_before_step_, counts_.hits);
  switch (state_.load(std::memory_order_relaxed)) {
    case PlacementState::shadow:
      if (step.exact) {
        state_ = PlacementState::ready;
        bad_in_a_row_ = 0;
      } else if (++counts_.bad_steps, ++bad_in_a_row_ >= kMostBadSteps) {
        stop_following("the steps were not as planned");
      }
      break;
    case PlacementState::ready:
      if (!step.exact) {
        ++counts_.bad_steps;
        state_ = PlacementState::shadow;
      }
      break;
    case PlacementState::engaged:
      if (10 * hits >= 9 * step.requests) {
        bad_in_a_row_ = 0;
      } else if (++counts_.bad_steps, ++bad_in_a_row_ >= kMostBadSteps) {
        stop_following("the steps were not as planned");
      }
      break;
    default:
      break;
  }
}

// The reasons given here are short enough to need no memory of their own, or are lost without it.
void PlacementSession::stop_following(const char* reason) noexcept {
  try {
    reason_ = reason;
  } catch (...) {
    reason_.clear();
  }
  if (arena_ != nullptr) {
    state_ = PlacementState::gaps;
    return;
  }
  state_ = PlacementState::off;
  follower_.reset();
}

// --- Plans and memory -------------------------------------------------------------------------

void PlacementSession::set_plan(PlacementPlan plan, PlacementState state) {
  if (const std::string fault = find_fault(plan); !fault.empty()) {
    throw InvalidInput("the placement plan has " + fault);
  }
  auto kept = std::make_unique<PlacementPlan>(std::move(plan));
  auto follower = std::make_unique<ProgramFollower>(*kept);
  const std::lock_guard lock(lock_);
  if (arena_ != nullptr) {
    throw InvalidInput(
        "a placement is in force already. Fix: disengage it, and free what lies in "
        "its arena");
  }
  plan_ = std::move(kept);
  follower_ = std::move(follower);
  counts_ = {};
  hits_before_step_ = 0;
  bad_in_a_row_ = 0;
  bypassed_ = 0;
  reason_.clear();
  state_ = state;
}

void PlacementSession::shadow(PlacementPlan plan) {
  set_plan(std::move(plan), PlacementState::shadow);
}

void PlacementSession::wait_for_memory(PlacementPlan plan) {
  set_plan(std::move(plan), PlacementState::waiting);
}

std::optional<PlacementPlan> PlacementSession::plan() const {
  const std::lock_guard lock(lock_);
  if (plan_ == nullptr) return std::nullopt;
  return *plan_;
}

void PlacementSession::attach(void* base, std::unique_ptr<DeviceBackend> backend) {
  const std::lock_guard lock(lock_);
  LOWTIDE_CHECK(plan_ != nullptr && arena_ == nullptr,
                "an arena needs a plan, and is the only one");
  if (backend != nullptr) backend_ = std::move(backend);
  ArenaObserver& self = *this;
  arena_ = std::make_unique<PlacementArena>(*plan_, base, *backend_, self);
  counts_ = {};
  hits_before_step_ = 0;
  bad_in_a_row_ = 0;
  const auto begin = reinterpret_cast<uintptr_t>(base);
  begin_.store(begin, std::memory_order_relaxed);
  end_.store(begin + static_cast<uintptr_t>(plan_->bytes), std::memory_order_release);
  state_ = PlacementState::engaged;
}

void PlacementSession::give_up(std::string reason) {
  const std::lock_guard lock(lock_);
  LOWTIDE_CHECK(arena_ == nullptr, "an arena is detached, not given up");
  follower_.reset();
  reason_ = std::move(reason);
  state_ = PlacementState::off;
}

void PlacementSession::disengage(std::string reason) {
  const std::lock_guard lock(lock_);
  if (state_ == PlacementState::off || state_ == PlacementState::gaps) return;
  stop_following(reason.c_str());
}

PlacementSession::Detached PlacementSession::detach(bool only_unused, bool wait) {
  const std::lock_guard lock(lock_);
  if (arena_ == nullptr || (only_unused && state_ != PlacementState::gaps)) return {};
  if (wait) {
    arena_->wait();
  } else {
    arena_->collect();
  }
  if (!arena_->idle()) return {};
  Detached detached{arena_->base(), follower_->streams()};
  detached.streams.resize(follower_->known_streams());
  end_ = 0;
  arena_.reset();
  follower_.reset();
  if (reason_.empty()) reason_ = "its memory was given back";
  state_ = PlacementState::off;
  return detached;
}

bool PlacementSession::in_use() noexcept {
  const std::lock_guard lock(lock_);
  if (arena_ == nullptr) return false;
  arena_->wait();
  return !arena_->idle();
}

PlacementStats PlacementSession::stats() const {
  PlacementStats stats;
  stats.recording = recorder_.recording();
  stats.recorded_marks = recorder_.marks();
  const std::lock_guard lock(lock_);
  stats.state = state_;
  stats.reason = reason_;
  stats.counts = counts_;
  stats.counts.bypassed = bypassed_;
  if (arena_ != nullptr) {
    stats.arena_bytes = arena_->bytes();
    stats.arena_free_bytes = arena_->free_bytes();
    stats.arena_blocks = arena_->blocks();
  }
  if (plan_ != nullptr) {
    stats.plan_bytes = plan_->bytes;
    stats.lower_bound_bytes = plan_->lower_bound_bytes;
  }
  return stats;
}

}  // namespace lowtide::hooks
