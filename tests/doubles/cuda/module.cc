// Modules and their kernels through the driver, as compilers of kernels at run time use them. What
// looks like an image is taken, and any name found in it: nothing is run.
#include <cstring>
#include <fstream>
#include <memory>
#include <unordered_map>

#include "kernels.h"

using namespace cuda_double;

struct CUmod_st {
  std::vector<CUkern_st*> kernels;
};

namespace {

std::unordered_map<CUmodule, std::unique_ptr<CUmod_st>>& modules() {
  static auto& result = *new std::unordered_map<CUmodule, std::unique_ptr<CUmod_st>>;
  return result;
}

CUresult launch_function(CUfunction function, CUstream stream) {
  Lock lock;
  if (!find_kernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>(launch(function, stream));  // the two have the same numbers
}

// A cubin, a fat binary, or PTX, which is text. Shorter files end with zeros.
bool is_image(const char* image) {
  const auto begins = [&](const char* text) {
    return std::strncmp(image, text, std::strlen(text)) == 0;
  };
  return begins("\177ELF") || begins("\x50\xed\x55\xba") || begins("//") || begins(".version");
}

CUresult load(CUmodule* module, const void* image) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  if (!is_image(static_cast<const char*>(image))) return CUDA_ERROR_INVALID_IMAGE;
  Lock lock;
  auto made = std::make_unique<CUmod_st>();
  *module = made.get();
  modules()[*module] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult known(CUfunction function) {
  Lock lock;
  return find_kernel(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CUDA_DOUBLE_CALL();
  return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  CUDA_DOUBLE_CALL();
  return load(module, image);
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  CUDA_DOUBLE_CALL();
  char start[16] = {};
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  file.read(start, sizeof start);
  return load(module, start);
}

// Its kernels can be launched no more; their names stay in the launch log.
CUresult cuModuleUnload(CUmodule module) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto found = modules().find(module);
  if (found == modules().end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUkern_st* kernel : found->second->kernels) remove_kernel(kernel);
  modules().erase(found);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const auto found = modules().find(module);
  if (found == modules().end()) return CUDA_ERROR_INVALID_HANDLE;
  CUkern_st* const kernel = add_kernel(nullptr, lasting(name));
  found->second->kernels.push_back(kernel);
  *function = reinterpret_cast<CUfunction>(kernel);
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
  return launch_function(function, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  CUDA_DOUBLE_CALL();
  return launch_function(function, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, CUstream stream, void**) {
  CUDA_DOUBLE_CALL();
  return launch_function(function, stream);
}

}  // extern "C"
