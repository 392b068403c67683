// Kernels by name: those that programs register at load, and those of modules loaded later.
// Locked.
#pragma once

#include "work.h"

struct CUkern_st {
  const char* name;  // mangled; lives as long as the process
};

namespace cuda_double {

// The kernel behind a host stub, or the kernel itself; null for what is neither.
CUkern_st* find_kernel(const void* function);
CUkern_st* add_kernel(const void* host_stub, const char* name);
// It is found no more. What was launched or captured keeps its name.
void remove_kernel(const CUkern_st* kernel);
cudaError_t launch(const void* function, cudaStream_t stream);

}  // namespace cuda_double
