// What nvcc's host code calls at load and around a launch. No header of the toolkit declares it.
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "kernels.h"

using namespace cuda_double;

namespace {

struct Kernels {
  std::deque<CUkern_st> made;  // all there ever were: an old handle is never a new one's
  std::unordered_map<const void*, CUkern_st*> by_stub;
  std::unordered_set<const void*> all;
};

Kernels& kernels() {
  static Kernels& result = *new Kernels;
  return result;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

CUkern_st* cuda_double::find_kernel(const void* function) {
  const auto at = kernels().by_stub.find(function);
  if (at != kernels().by_stub.end()) return at->second;
  if (kernels().all.count(function) == 0) return nullptr;
  return static_cast<CUkern_st*>(const_cast<void*>(function));
}

CUkern_st* cuda_double::add_kernel(const void* host_stub, const char* name) {
  CUkern_st* const kernel = &kernels().made.emplace_back(CUkern_st{name});
  if (host_stub) kernels().by_stub[host_stub] = kernel;
  kernels().all.insert(kernel);
  return kernel;
}

void cuda_double::remove_kernel(const CUkern_st* kernel) { kernels().all.erase(kernel); }

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static uintptr_t handles = 0;
  Lock lock;
  return reinterpret_cast<void**>(++handles);
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* host_stub, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  Lock lock;
  add_kernel(host_stub, name);
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_stub) {
  Lock lock;
  *kernel = find_kernel(host_stub);
  return *kernel ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return fail(cudaErrorInvalidConfiguration);
  const Configuration& top = configurations.back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  configurations.pop_back();
  return cudaSuccess;
}

}  // extern "C"
