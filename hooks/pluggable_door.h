// Door B: the GPU's caching core behind C functions, for torch.cuda.memory.CUDAPluggableAllocator
// and MemPool, and for any program that wants device memory. DOORS.md shows how, and what torch
// then refuses.
//
// One core per device, made at its first use and kept until the process ends. Devices are numbered
// as CUDA does; a stream is a cudaStream_t, null the default stream. Sizes are bytes.
//
// Thread safety: all calls, from any thread. Nothing is thrown, with two exceptions. Where
// lowtide_malloc() cannot meet a request and the process has torch, it throws torch's own
// OutOfMemoryError with the account as its text, which is what torch expects of an allocator (it
// would take a null pointer for memory). Without torch the text goes to stderr, null is returned,
// and cudaGetLastError() says "out of memory". And lowtide_begin_allocate_to_pool() throws
// lowtide::InvalidInput for torch.compile's graph trees, which door B cannot serve.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#include <functional>
#include <utility>

extern "C" {
#endif

struct CUstream_st;

// Null for 0 bytes. 512-byte aligned.
void* lowtide_malloc(ssize_t bytes, int device, struct CUstream_st* stream);
// The same, but null where the request cannot be met, whatever the process: for MemPool, where
// torch goes on to give its own caches back and asks again.
void* lowtide_malloc_or_null(ssize_t bytes, int device, struct CUstream_st* stream);
// The block is known by its address; `bytes` and `stream` are not looked at. A pointer that is not
// a live block of the device is ignored, counted, and reported once.
void lowtide_free(void* block, ssize_t bytes, int device, struct CUstream_st* stream);

// For the setters of torch's allocator object, by the setter's name.
void lowtide_init(int devices);                                       // set_init_fn
void lowtide_empty_cache(void);                                       // set_reset_fn
void lowtide_set_memory_fraction(double fraction, int device);        // set_memory_fraction_fn
void* lowtide_base_allocation(void* block, size_t* bytes);            // set_base_alloc_fn
void lowtide_record_stream(void* block, struct CUstream_st* stream);  // set_record_stream_fn

// Hard limit on reserved bytes; negative = none. 0, or -1 where there is no such device.
int lowtide_set_memory_limit(int64_t bytes, int device);

// torch.cuda.memory_stats() of the device as one JSON object, flat, under torch's names; what torch
// does not count begins with "lowtide.". All 0 where nothing was allocated yet. The text is valid
// until the thread's next call.
const char* lowtide_stats_json(int device);
void lowtide_reset_peak_stats(int device);
void lowtide_reset_accumulated_stats(int device);

// Why the thread's last request failed; empty where none did. Valid until its next failure.
const char* lowtide_last_error(void);

#ifdef __cplusplus
// A graph's pool: C++ types, as torch has them. One that takes every stream is refused, above.
void lowtide_begin_allocate_to_pool(int device,
                                    std::pair<unsigned long long, unsigned long long> id,
                                    std::function<bool(CUstream_st*)> filter);
void lowtide_end_allocate_to_pool(int device, std::pair<unsigned long long, unsigned long long> id);
void lowtide_release_pool(int device, std::pair<unsigned long long, unsigned long long> id);
}
#endif
