#include <cuda_runtime_api.h>

#include <cstdio>

extern "C" int run_plugin() {
  void* block = nullptr;
  const int allocated = cudaMalloc(&block, 11 << 20);
  std::printf("allocated %d freed %d\n", allocated, cudaFree(block));
  return 0;
}
