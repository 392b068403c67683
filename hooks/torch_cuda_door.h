// Door A by C calls, as Python's ctypes makes them: what torch_cuda_allocator.h says holds here
// too.
//
// Functions that return int return 0, or -1 with the reason in lowtide_cuda_error(). Texts belong
// to the library and are the calling thread's until it calls the same function again. Sizes are
// bytes. Nothing is thrown.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Frees live memory of the device: returns the bytes it freed, 0 = nothing left. Must not throw.
typedef int64_t (*LowtideCudaPressure)(int device, int64_t need_bytes, int64_t request_bytes,
                                       void* context);

int lowtide_cuda_install(void);
int lowtide_cuda_uninstall(void);
int lowtide_cuda_installed(void);  // 1 or 0; has no error
const char* lowtide_cuda_error(void);

int lowtide_cuda_set_limit(int device, int64_t reserved_bytes);  // negative: none
// NULL takes it out. The first one is set while no other thread allocates on CUDA; none is replaced
// from inside itself.
int lowtide_cuda_set_pressure(int device, LowtideCudaPressure callback, void* context);

/* One JSON object, NULL on error. live, active and blocks have current and peak; live_bytes end
 * when the program frees, active_bytes when the memory may be used again; peaks count from the
 * installation on, or from torch.cuda.reset_peak_memory_stats(). limit_bytes is null without one.
 */
const char* lowtide_cuda_stats_json(int device);

// --- Planned addresses: torch_cuda_placement.h says what each does and when.

int lowtide_cuda_placement_record(int device);
int lowtide_cuda_placement_stop(int device);
int lowtide_cuda_placement_mark(int device);  // between two steps
int lowtide_cuda_placement_save(int device, const char* path);
int lowtide_cuda_placement_load(int device, const char* path);
int lowtide_cuda_placement_shadow(int device);
// `storages`: c10::StorageImpl pointers, in Python `tensor.untyped_storage()._cdata`.
int lowtide_cuda_placement_engage(int device, void* const* storages, int64_t count);
int lowtide_cuda_placement_disengage(int device);

/* One JSON object, NULL on error. state: off, shadow, ready, waiting (for the first request),
 * engaged, gaps (the plan is given up, its memory still used); reason says why. Counts are of
 * requests since the plan came: hits (planned address), gap_fallbacks (elsewhere in the arena),
 * native_fallbacks, and so on as in PlacementCounts. reserved_growth: by how much reserved memory
 * has grown since the arena came, at step marks. */
const char* lowtide_cuda_placement_json(int device);

#ifdef __cplusplus
}
#endif
