// Placement of one device in the process: records what the program asks for, follows a plan through
// it, and hands out planned addresses, or any that fit, from an arena that its owner provides.
//
// States. off -> shadow: a plan is followed without serving anything. shadow -> ready: a whole step
// was as planned. ready or waiting (a plan of another run) -> engaged: the owner has attached an
// arena. engaged -> gaps: kMostBadSteps bad steps in a row; the arena then serves whatever fits in
// it, lest it lie idle, and the plan is no longer followed. -> off: the arena was detached.
// Recording goes beside all of that.
//
// A step is bad when less than 9 of 10 of its requests got their planned slots.
//
// Thread safety: all calls, from any thread; the observer is called under the session's lock, in
// true order. Arena memory is not owned: detach() gives it back to the owner. Nothing is thrown by
// what serves the program (allocate to mark).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hooks/light_lock.h"
#include "hooks/placement_arena.h"
#include "hooks/placement_follower.h"
#include "hooks/placement_plan.h"
#include "hooks/placement_program.h"
#include "hooks/placement_recorder.h"

namespace lowtide::hooks {

enum class PlacementState : uint8_t { off, shadow, ready, waiting, engaged, gaps };
[[nodiscard]] const char* to_string(PlacementState state) noexcept;

struct PlacementCounts {  // since the plan came
  int64_t requests = 0;
  int64_t hits = 0;              // served at their planned address
  int64_t gap_fallbacks = 0;     // served elsewhere in the arena
  int64_t native_fallbacks = 0;  // declined
  int64_t native_bytes = 0;      // of these, rounded
  int64_t late_gaps = 0;         // declined, then served in a gap after memory was freed
  int64_t busy_slots = 0;        // planned, but the range was not free
  int64_t unplanned = 0;         // not served by plan: each step keeps another
  int64_t resyncs = 0;
  int64_t steps = 0;
  int64_t bad_steps = 0;
  int64_t bypassed = 0;       // of captures and pools: never served, not part of the others
  int64_t invalid_frees = 0;  // of what is no live block of the arena
};

struct PlacementStats {
  PlacementState state = PlacementState::off;
  bool recording = false;
  int64_t recorded_marks = 0;
  std::string reason;  // why the state is not a better one; empty: nothing happened
  PlacementCounts counts;
  int64_t arena_bytes = 0;
  int64_t arena_free_bytes = 0;
  int64_t arena_blocks = 0;
  int64_t plan_bytes = 0;
  int64_t lower_bound_bytes = 0;
};

class PlacementSession final : ArenaObserver {
 public:
  static constexpr int kMostBadSteps = 3;
  struct Detached {
    void* base = nullptr;               // null: there was none, or it is in use
    std::vector<DeviceStream> streams;  // that used it
  };

  // The observer must outlive the session.
  explicit PlacementSession(ArenaObserver& observer) : observer_(observer) {}

  // --- What the program's requests go through. `bytes` > 0.
  // Null: the caller serves it, and says so by served_elsewhere().
  [[nodiscard]] void* allocate(size_t bytes, DeviceStream stream, int32_t op) noexcept;
  // For a request that allocate() declined, when memory is scarce: any gap.
  [[nodiscard]] void* allocate_in_gap(size_t bytes, DeviceStream stream, int32_t op) noexcept;
  void served_elsewhere(const void* address, size_t bytes, DeviceStream stream,
                        int32_t op) noexcept {
    if (recorder_.recording()) recorder_.allocated(address, bytes, stream, op);
  }
  // Memory that was served elsewhere may be used again.
  void freed_elsewhere(const void* address) noexcept {
    if (recorder_.recording()) recorder_.freed(address);
  }
  void bypassed() noexcept { bypassed_.fetch_add(1, std::memory_order_relaxed); }
  // Whether the address lies in the arena.
  [[nodiscard]] bool owns(const void* address) const noexcept {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at < end_.load(std::memory_order_acquire) &&
           at >= begin_.load(std::memory_order_relaxed);
  }
  bool free(void* address) noexcept;  // false, and counted: not a live block
  bool use_on(void* address, DeviceStream stream) noexcept;
  void mark() noexcept;

  // --- Recording and plans.
  void start_recording() { recorder_.start(); }
  [[nodiscard]] Recording take_recording() { return recorder_.take(); }
  // Follows from here on. Throws InvalidInput for a bad plan, or while there is an arena.
  void shadow(PlacementPlan plan);
  void wait_for_memory(PlacementPlan plan);
  [[nodiscard]] bool wants_memory() const noexcept {
    return state_.load(std::memory_order_acquire) == PlacementState::waiting;
  }
  [[nodiscard]] std::optional<PlacementPlan> plan() const;
  [[nodiscard]] PlacementState state() const noexcept { return state_; }

  // --- The arena.
  // Memory of plan().bytes; the plan is followed on from where it is.
  void attach(void* base, std::unique_ptr<DeviceBackend> backend);
  // No arena after all; the plan is dropped.
  void give_up(std::string reason);
  // The plan is no longer followed; an arena still serves gaps.
  void disengage(std::string reason);
  // The arena, where it is idle. `only_unused`: not while a plan is followed. `wait`: for the
  // events of freed blocks.
  [[nodiscard]] Detached detach(bool only_unused, bool wait);

  // Whether blocks live in the arena, after waiting for those that were freed.
  [[nodiscard]] bool in_use() noexcept;

  [[nodiscard]] PlacementStats stats() const;
  // The arena's blocks, while nothing changes.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    const std::lock_guard lock(lock_);
    if (arena_ != nullptr) arena_->for_each_block(visit);
  }

 private:
  void on_allocated(const ArenaBlock& block) noexcept override;
  void on_freed(const ArenaBlock& block) noexcept override { observer_.on_freed(block); }
  void on_completed(const ArenaBlock& block) noexcept override;

  [[nodiscard]] void* serve(ArenaRequest& request) noexcept;
  [[nodiscard]] void* serve_planned(ArenaRequest& request, const PlannedRequest* planned) noexcept;
  [[nodiscard]] void* serve_gap(const ArenaRequest& request) noexcept;
  void set_plan(PlacementPlan plan, PlacementState state);
  void judge(const FollowedStep& step) noexcept;
  void stop_following(const char* reason) noexcept;

  ArenaObserver& observer_;
  PlacementRecorder recorder_;
  std::atomic<int64_t> bypassed_{0};
  std::atomic<uintptr_t> begin_{0}, end_{0};                // of the arena
  std::atomic<PlacementState> state_{PlacementState::off};  // changes under the lock

  mutable LightLock lock_;  // of what follows
  std::unique_ptr<PlacementPlan> plan_;
  std::unique_ptr<ProgramFollower> follower_;
  std::unique_ptr<DeviceBackend> backend_;
  std::unique_ptr<PlacementArena> arena_;
  std::array<PlannedSlot, 512> slots_ahead_;  // scratch of a gap fallback
  PlacementCounts counts_;
  int64_t hits_before_step_ = 0;
  int bad_in_a_row_ = 0;
  std::string reason_;
};

}  // namespace lowtide::hooks
