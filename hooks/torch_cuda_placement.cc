#include "hooks/torch_cuda_placement.h"

#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "hooks/device_pool.h"
#include "hooks/placement_file.h"
#include "hooks/torch_cuda_move.h"
#include "hooks/torch_cuda_placed.h"

namespace lowtide::hooks {
namespace {

// What was recorded last, per device: a shadowed plan is made again with what is to be moved.
struct Recordings {
  std::mutex mutex;
  std::array<std::optional<Recording>, CudaLedgerWatch::kMaxDevices> of_device;
};

Recordings& recordings() {
  static auto* const instance = new Recordings;
  return *instance;
}

CudaArena& arena_of(int device) { return installed_allocator(device).arena(device); }

// The session's recording, ended, or the one that was ended before.
const Recording& recorded(int device) {
  auto& kept = recordings().of_device[static_cast<size_t>(device)];
  PlacementSession& session = arena_of(device).session();
  if (session.stats().recording) kept = session.take_recording();
  if (!kept.has_value()) {
    throw InvalidInput(
        "nothing was recorded on this device. Fix: start a recording, and mark at "
        "least two whole steps");
  }
  return *kept;
}

constexpr ProgramOptions kSteadyStep{.whole_program = false};

void check_lower(const CudaArena& arena, const PlacementPlan& plan, const StorageMove& move) {
  const auto arena_bytes =
      static_cast<int64_t>(DevicePool::segment_bytes(static_cast<size_t>(plan.bytes)));
  const int64_t planned = arena.reserved_without(move.addresses()) + arena_bytes;
  if (planned < arena.most_reserved()) return;
  throw InvalidInput("placement would reserve " + format_bytes(planned) +
                     ", the native allocator reserves " + format_bytes(arena.most_reserved()) +
                     ". Fix: let parameters and optimizer state be moved too, or load a plan of "
                     "the whole program at the start");
}

}  // namespace

void TorchCudaPlacement::start_recording(int device) {
  CudaArena& arena = arena_of(device);
  const std::lock_guard lock(recordings().mutex);
  recordings().of_device[static_cast<size_t>(device)].reset();
  arena.session().start_recording();
  arena.watch_reserved();
}

void TorchCudaPlacement::stop_recording(int device) {
  CudaArena& arena = arena_of(device);
  const std::lock_guard lock(recordings().mutex);
  recordings().of_device[static_cast<size_t>(device)] = arena.session().take_recording();
}

void TorchCudaPlacement::mark_step(int device) { arena_of(device).mark_step(); }

void TorchCudaPlacement::save(int device, const std::filesystem::path& path) {
  const std::lock_guard lock(recordings().mutex);
  save_placement(path, plan_program(recorded(device)));
}

void TorchCudaPlacement::load(int device, const std::filesystem::path& path) {
  PlacementPlan plan = load_placement(path);
  arena_of(device).session().wait_for_memory(std::move(plan));
}

void TorchCudaPlacement::shadow(int device) {
  const std::lock_guard lock(recordings().mutex);
  arena_of(device).session().shadow(plan_program(recorded(device), kSteadyStep));
}

void TorchCudaPlacement::engage(int device, void* const* storages, int64_t count) {
  CudaArena& arena = arena_of(device);
  PlacedCudaAllocator& allocator = installed_allocator(device);
  PlacementSession& session = arena.session();
  const std::lock_guard lock(recordings().mutex);
  if (session.state() != PlacementState::ready) {
    throw InvalidInput(std::string("placement is not ready to engage but '") +
                       to_string(session.state()) +
                       "'. Fix: shadow(), then a whole step as recorded, then a step mark");
  }
  const Recording& recording = recorded(device);
  if (count > 0 && recording.streams.size() > 1) {
    throw InvalidInput(
        "tensors are moved for programs that allocate on one stream only; this one "
        "uses " +
        std::to_string(recording.streams.size()) + ". Fix: engage without them");
  }
  const std::span<c10::StorageImpl* const> given(
      reinterpret_cast<c10::StorageImpl* const*>(storages), static_cast<size_t>(count));
  StorageMove move(given, arena.device(), allocator.native()->raw_deleter());
  ProgramOptions options = kSteadyStep;
  options.residents = move.sizes();
  PlacementPlan plan = plan_program(recording, options);
  check_lower(arena, plan, move);

  move.evacuate();
  std::exception_ptr failure;
  try {
    allocator.native()->emptyCache({0, 0});
    session.wait_for_memory(std::move(plan));
    if (!arena.acquire()) throw InvalidInput(session.stats().reason);
  } catch (...) {
    failure = std::current_exception();
  }
  move.restore(allocator);  // whatever came, tensors come back
  if (failure != nullptr) std::rethrow_exception(failure);
  if (!move.sizes().empty()) session.mark();  // the plan's first step is the move
}

void TorchCudaPlacement::disengage(int device) {
  CudaArena& arena = arena_of(device);
  arena.session().disengage("disengaged by the program");
  (void)arena.give_back(/*only_unused=*/true, /*wait=*/true);
}

CudaPlacementStats TorchCudaPlacement::stats(int device) {
  CudaArena& arena = arena_of(device);
  CudaPlacementStats stats;
  static_cast<PlacementStats&>(stats) = arena.session().stats();
  stats.reserved_at_start = arena.reserved_at_start();
  stats.reserved_growth = arena.most_reserved() - arena.reserved_at_start();
  return stats;
}

}  // namespace lowtide::hooks
