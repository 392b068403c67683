// What one allocation and its free cost under the allocator that torch uses now, and under its
// native one: loaded into Python by tests/bench/cuda_arm.py.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <time.h>

namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

CUDAAllocator* const native = c10::cuda::CUDACachingAllocator::get();  // at loading

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

extern "C" {

// Where another allocator took its place before it was used.
void pair_cost_init_native(void) { native->init(c10::cuda::device_count()); }

// Thread CPU ns of a pair, of `pairs` in a row. `own`: of the native allocator, else of torch's.
double pair_cost(int own, int pairs, size_t bytes) {
  CUDAAllocator* const allocator = own != 0 ? native : c10::cuda::CUDACachingAllocator::get();
  const double start = thread_ns();
  for (int i = 0; i < pairs; ++i) {
    const c10::DataPtr block = allocator->allocate(bytes);
    asm volatile("" : : "r"(block.get()) : "memory");
  }
  return (thread_ns() - start) / pairs;
}
}
