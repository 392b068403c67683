#include <nlohmann/json.hpp>
#include <string>

#include "hooks/torch_cuda_door.h"
#include "hooks/torch_cuda_guarded.h"
#include "hooks/torch_cuda_placement.h"

namespace lowtide::hooks {
namespace {

template <typename Call>
int placement_call(const Call& call) noexcept {
  return guarded(-1, [&] {
    call();
    return 0;
  });
}

nlohmann::json json_of(const CudaPlacementStats& stats) {
  const PlacementCounts& counts = stats.counts;
  return {
      {"state", to_string(stats.state)},
      {"engaged", stats.state == PlacementState::engaged},
      {"reason", stats.reason},
      {"recording", stats.recording},
      {"recorded_marks", stats.recorded_marks},
      {"requests", counts.requests},
      {"hits", counts.hits},
      {"gap_fallbacks", counts.gap_fallbacks},
      {"native_fallbacks", counts.native_fallbacks},
      {"native_bytes", counts.native_bytes},
      {"late_gaps", counts.late_gaps},
      {"busy_slots", counts.busy_slots},
      {"unplanned", counts.unplanned},
      {"resyncs", counts.resyncs},
      {"steps", counts.steps},
      {"bad_steps", counts.bad_steps},
      {"bypassed", counts.bypassed},
      {"invalid_frees", counts.invalid_frees},
      {"plan_bytes", stats.plan_bytes},
      {"lower_bound_bytes", stats.lower_bound_bytes},
      {"arena_bytes", stats.arena_bytes},
      {"arena_free_bytes", stats.arena_free_bytes},
      {"arena_blocks", stats.arena_blocks},
      {"reserved_at_start", stats.reserved_at_start},
      {"reserved_growth", stats.reserved_growth},
  };
}

}  // namespace
}  // namespace lowtide::hooks

using lowtide::hooks::placement_call;
using lowtide::hooks::TorchCudaPlacement;

extern "C" {

int lowtide_cuda_placement_record(int device) {
  return placement_call([&] { TorchCudaPlacement::start_recording(device); });
}

int lowtide_cuda_placement_stop(int device) {
  return placement_call([&] { TorchCudaPlacement::stop_recording(device); });
}

int lowtide_cuda_placement_mark(int device) {
  return placement_call([&] { TorchCudaPlacement::mark_step(device); });
}

int lowtide_cuda_placement_save(int device, const char* path) {
  return placement_call([&] { TorchCudaPlacement::save(device, path); });
}

int lowtide_cuda_placement_load(int device, const char* path) {
  return placement_call([&] { TorchCudaPlacement::load(device, path); });
}

int lowtide_cuda_placement_shadow(int device) {
  return placement_call([&] { TorchCudaPlacement::shadow(device); });
}

int lowtide_cuda_placement_engage(int device, void* const* storages, int64_t count) {
  return placement_call([&] { TorchCudaPlacement::engage(device, storages, count); });
}

int lowtide_cuda_placement_disengage(int device) {
  return placement_call([&] { TorchCudaPlacement::disengage(device); });
}

const char* lowtide_cuda_placement_json(int device) {
  return lowtide::hooks::guarded(static_cast<const char*>(nullptr), [&] {
    thread_local std::string text;
    text = lowtide::hooks::json_of(TorchCudaPlacement::stats(device)).dump();
    return text.c_str();
  });
}

}  // extern "C"
