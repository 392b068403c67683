// Modules and their kernels through the driver, as compilers of kernels at run time use them. Any
// image is taken and any name found in it: nothing is run.
#include "kernels.h"

using namespace cuda_double;

struct CUmod_st {};

namespace {

cudaError_t launch_function(CUfunction function, CUstream stream) {
  Lock lock;
  return launch(function, stream);
}

CUresult load(CUmodule* module) {
  *module = new CUmod_st;
  return CUDA_SUCCESS;
}

CUresult known(CUfunction function) {
  Lock lock;
  return find_kernel(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The runtime's and the driver's errors have the same numbers.
CUresult as_driver(cudaError_t error) { return static_cast<CUresult>(error); }

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  CUDA_DOUBLE_CALL();
  return load(module);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  CUDA_DOUBLE_CALL();
  return load(module);
}

CUresult cuModuleLoad(CUmodule* module, const char*) {
  CUDA_DOUBLE_CALL();
  return load(module);
}

// Its kernels stay known: their names are in the launch log.
CUresult cuModuleUnload(CUmodule module) {
  CUDA_DOUBLE_CALL();
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  *function = reinterpret_cast<CUfunction>(add_kernel(nullptr, lasting(name)));
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  CUDA_DOUBLE_CALL();
  switch (which) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = 0;
      break;
    default:
      return missing_driver(("cuFuncGetAttribute of " + std::to_string(which)).c_str());
  }
  return known(function);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
  CUDA_DOUBLE_CALL();
  return known(function);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  CUDA_DOUBLE_CALL();
  return known(function);
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream stream, void**, void**) {
  CUDA_DOUBLE_CALL();
  return as_driver(launch_function(function, stream));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  CUDA_DOUBLE_CALL();
  return as_driver(launch_function(function, config->hStream));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, CUstream stream, void**) {
  CUDA_DOUBLE_CALL();
  return as_driver(launch_function(function, stream));
}

}  // extern "C"
