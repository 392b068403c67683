// Planned addresses under door A (torch_cuda_allocator.h): record, plan, follow.
//
// A whole program, in two runs. In the first: start_recording() before the model is built,
// mark_step() before each step and after the last, at least three steps of one shape, then save().
// In the second: load() before the model is built, and the same marks.
//
// In one run: start_recording() at a step's end, two steps with marks, shadow(); the next step is
// compared with the plan; then engage() at a step's end. It moves the given storages (parameters,
// optimizer state, buffers) into the arena: without them, they hold the native allocator's memory
// and little is gained. Where the arena would not lower what is reserved it is refused.
//
// All calls: one thread at a time per device, and mark_step(), engage() between steps. Throws
// InvalidInput (no such device, not installed, no recording, not ready), FileError; what fails
// leaves everything as it was, but for what engage() says.
#pragma once

#include <cstdint>
#include <filesystem>

#include "hooks/placement_session.h"

namespace lowtide::hooks {

struct CudaPlacementStats : PlacementStats {
  // Reserved memory since the arena came: a step that did not fit its plan shows here.
  int64_t reserved_at_start = 0;
  int64_t reserved_growth = 0;  // the most at a step mark, above that
};

class TorchCudaPlacement {
 public:
  static void start_recording(int device);
  static void stop_recording(int device);
  static void mark_step(int device);

  // Plans the whole program from what was recorded, which ends the recording.
  static void save(int device, const std::filesystem::path& path);
  // The arena is taken with the first request that follows.
  static void load(int device, const std::filesystem::path& path);

  // Plans the steady step from what was recorded, which ends the recording.
  static void shadow(int device);
  // `storages`: c10::StorageImpl of tensors to be moved; others than whole blocks of the native
  // allocator are left where they are. Their bytes go through host memory. The caller knows that
  // nothing has their addresses: no captured graph, no raw pointer. Throws InvalidInput when the
  // plan would not lower what is reserved; the allocator's OutOfMemoryError when the device cannot
  // hold again what it held before.
  static void engage(int device, void* const* storages, int64_t count);
  static void disengage(int device);

  [[nodiscard]] static CudaPlacementStats stats(int device);
};

}  // namespace lowtide::hooks
