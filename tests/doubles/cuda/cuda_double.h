// What tests ask of the CUDA double, through C so that ctypes reads it too.
//
// The double stands in for libcudart, libcuda, cuBLAS and NVML where there is no GPU. Memory, order
// and errors are modelled; values are not: kernels compute nothing, only copies and memsets do.
//
// Counts are kept by the double itself and owe nothing to torch or Lowtide: they are the judge of
// memory tests. Sizes are bytes. A tick is the double's unit of time: the clock moves by one with
// each piece of work that is put on a stream and with each query, and work completes `delay` ticks
// after it was put there, in stream order. All functions are thread-safe and never throw.
//
// Environment, read once at the first call:
//   LOWTIDE_DOUBLE_MEMORY      bytes of memory of each device (default 16 GiB)
//   LOWTIDE_DOUBLE_DEVICES     how many devices (default 1)
//   LOWTIDE_DOUBLE_CAPABILITY  compute capability (default 9.0)
//   LOWTIDE_DOUBLE_DELAY       ticks until work completes (default 0: at once)
//   LOWTIDE_DOUBLE_STRICT      a cudaFree that has to wait for work counts as "freed while in use"
//   LOWTIDE_DOUBLE_REPORT      print misuse and counts at exit
//   LOWTIDE_DOUBLE_QUIET       no banner
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What was put on a stream. A fake CUPTI makes its activity records of these.
enum LowtideDoubleWork {
  kLowtideDoubleKernel = 0,
  kLowtideDoubleMemcpy = 1,
  kLowtideDoubleMemset = 2,
  kLowtideDoubleBlas = 3,  // a call of cuBLAS or cuBLASLt, by its function's name
  kLowtideDoubleHost = 4,  // a host function in stream order
};

struct LowtideDoubleLaunch {
  uint64_t sequence;     // 0, 1, 2... over all streams and devices
  uint64_t correlation;  // of the call that launched it; all work of one graph launch shares it
  uint64_t bytes;        // of copies and memsets
  int64_t host_ns;       // CLOCK_MONOTONIC
  const char* name;      // mangled, as registered; lives as long as the process
  int32_t work;          // LowtideDoubleWork
  int32_t device;
  int32_t stream;  // number of the stream, never used twice; the default stream of device d is d
  int32_t thread;  // gettid of the launching thread
};

// Bytes of cudaMalloc, cudaMallocAsync and cuMemCreate, as asked for, that are not given back.
uint64_t lowtide_double_bytes(int device);
uint64_t lowtide_double_largest_bytes(int device);
void lowtide_double_reset_largest(int device);
void lowtide_double_set_memory(int device, uint64_t bytes);

// How often a function of the CUDA API was called, by the name of its symbol.
uint64_t lowtide_double_calls(const char* function);
// How many functions that the double does not model were called. Each is named on stderr once.
uint64_t lowtide_double_missing(void);

// Kinds: "double free", "free of a foreign pointer", "access of unmapped memory", "use after free",
// "freed while in use". NULL: all of them. The first message is empty where there is none.
uint64_t lowtide_double_misuse(const char* kind);
const char* lowtide_double_first_misuse(const char* kind);
void lowtide_double_forget_misuse(void);

// For allocators that hand out parts of device memory: then the double also tells when a part is
// used after it was returned ("use after free"), and when it is given to a stream although work of
// another stream on it is ordered before neither that stream nor the host ("freed while in use").
void lowtide_double_given(const void* address, uint64_t bytes, void* stream);
void lowtide_double_returned(const void* address, uint64_t bytes);
// A kernel that accesses these bytes: real kernels' arguments cannot be told apart.
int lowtide_double_touch(const void* address, uint64_t bytes, void* stream);

void lowtide_double_set_delay(uint64_t ticks);
void lowtide_double_advance(uint64_t ticks);

// Launches so far, and copies of those from `first` on: how many were written. The newest 1 Mi
// launches are kept.
uint64_t lowtide_double_launches(void);
uint64_t lowtide_double_read_launches(uint64_t first, struct LowtideDoubleLaunch* out,
                                      uint64_t capacity);

#ifdef __cplusplus
}
#endif
