// A CUDA program that knows nothing of Lowtide: asks for memory in one way after the other, and
// prints what it got. It is linked with the double's runtime as with a real one (cuda_memory), or
// has a runtime of its own inside (cuda_memory_static). `cuda_memory MODE`; one mode is one test.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "doubles/cuda/cuda_double.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void* allocate(size_t bytes) {
  void* block = nullptr;
  std::printf("cudaMalloc %zu: %d\n", bytes, cudaMalloc(&block, bytes));
  return block;
}

void free_block(void* block) { std::printf("cudaFree: %d\n", cudaFree(block)); }

// From before main until after the last exit handler.
struct Early {
  Early() { cudaMalloc(&block, 3 * kMiB); }
  ~Early() {
    if (block != nullptr) cudaFree(block);
  }
  void* block = nullptr;
} early;

void print_double() {
  for (int device = 0; device < 2; ++device) {
    std::printf("double %d %zu %zu\n", device, size_t{lowtide_double_bytes(device)},
                size_t{lowtide_double_largest_bytes(device)});
  }
  std::fflush(stdout);
}

// ---- one thread

int plain() {
  void* const first = allocate(20 * kMiB);
  void* const second = allocate(2 * kMiB);
  allocate(0);
  free_block(first);
  free_block(nullptr);
  cudaSetDevice(1);
  allocate(5 * kMiB);
  cudaSetDevice(0);
  free_block(second);
  allocate(8 * kMiB);
  print_double();
  return 0;
}

int families() {
  void* blocks[5] = {};
  size_t pitch = 0;
  cudaPitchedPtr pitched{};
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc texel{32, 32, 0, 0, cudaChannelFormatKindFloat};
  const int errors[] = {
      cudaMallocPitch(&blocks[0], &pitch, 1000, 100),
      cudaMalloc3D(&pitched, {700, 10, 10}),
      cudaMallocArray(&array, &texel, 256, 64, 0),
      cudaMallocAsync(&blocks[1], 3 * kMiB, nullptr),
      cudaMallocFromPoolAsync(&blocks[2], 2 * kMiB, nullptr, nullptr),
      cudaMallocManaged(&blocks[3], 7 * kMiB, cudaMemAttachGlobal),
      cudaMallocHost(&blocks[4], kMiB),
      cudaHostAlloc(reinterpret_cast<void**>(&blocks[4]), 2 * kMiB, 0),
  };
  for (const int error : errors) std::printf("error %d\n", error);
  print_double();
  std::printf("%d %d %d %d %d %d\n", cudaFree(blocks[0]), cudaFree(pitched.ptr),
              cudaFreeArray(array), cudaFreeAsync(blocks[1], nullptr), cudaFree(blocks[3]),
              cudaFreeHost(blocks[4]));
  return 0;
}

template <typename Function>
Function* driver(Function*, const char* name) {
  void* found = nullptr;
  cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, 0, nullptr);
  return reinterpret_cast<Function*>(found);
}
#define DRIVER(name) driver(&name, #name)

// As torch's expandable segments, but with the handle given back while it is mapped.
int physical() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUdeviceptr base = 0;
  DRIVER(cuMemAddressReserve)(&base, 20 * kMiB, 0, 0, 0);
  for (size_t i = 0; i < 3; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    std::printf("create %d\n", DRIVER(cuMemCreate)(&handle, 4 * kMiB, &properties, 0));
    DRIVER(cuMemMap)(base + i * 4 * kMiB, 4 * kMiB, 0, handle, 0);
    DRIVER(cuMemRelease)(handle);
  }
  print_double();
  std::printf("unmap %d\n", DRIVER(cuMemUnmap)(base, 8 * kMiB));
  CUmemGenericAllocationHandle handle = 0;
  std::printf("too much %d\n", DRIVER(cuMemCreate)(&handle, size_t{1} << 40, &properties, 0));
  // Found by the lookup that the lookup found.
  void* found = nullptr;
  cudaGetDriverEntryPointByVersion("cuGetProcAddress", &found, CUDART_VERSION, 0, nullptr);
  const auto lookup = reinterpret_cast<decltype(&cuGetProcAddress)>(found);
  lookup("cuMemAlloc", &found, CUDA_VERSION, 0, nullptr);
  CUdeviceptr block = 0;
  std::printf("alloc %d\n", reinterpret_cast<decltype(&cuMemAlloc)>(found)(&block, 6 * kMiB));
  print_double();
  return 0;
}

int trouble() {
  allocate(size_t{1} << 40);
  allocate(30 * kMiB);
  std::printf("last error %d\n", cudaGetLastError());
  int host = 0;
  free_block(&host);
  std::printf("last error %d\n", cudaGetLastError());
  print_double();
  return 0;
}

// Through a library between this program and the runtime that makes one request of another.
int nested() {
  void* block = nullptr;
  std::printf("managed %d\n", cudaMallocManaged(&block, 9 * kMiB, cudaMemAttachGlobal));
  print_double();
  return 0;
}

// ---- many threads

std::atomic<bool> stop{false};

// Freed addresses stay reserved in the double, which a fork has to copy: hence the pauses.
void churn(uint32_t seed, int operations, int pause_us) {
  std::mt19937 random(seed);
  std::vector<void*> blocks;
  for (int i = 0; i < operations && !stop; ++i) {
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
    if (blocks.size() < 20 && (blocks.empty() || random() % 2 == 0)) {
      void* block = nullptr;
      if (cudaMalloc(&block, 1 + random() % (2 * kMiB)) == cudaSuccess) blocks.push_back(block);
    } else {
      cudaFree(blocks.back());
      blocks.pop_back();
    }
  }
  for (void* const block : blocks) cudaFree(block);
}

std::vector<std::thread> churning(int count, int operations, int pause_us = 0) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(churn, 1 + t, operations, pause_us);
  return threads;
}

int threads() {
  for (std::thread& thread : churning(8, 2000)) thread.join();
  void* const block = allocate(512 * kMiB);  // more than all of them together could have
  print_double();
  free_block(block);
  return 0;
}

[[noreturn]] void leave_while_others_allocate(void (*leave)(int)) {
  for (std::thread& thread : churning(4, 1 << 30)) thread.detach();
  allocate(100 * kMiB);
  std::fflush(stdout);
  usleep(20'000);
  leave(3);
  std::abort();
}

int end_by_signal() {
  signal(SIGTERM, [](int) { std::exit(4); });  // what programs should not do, and do
  for (std::thread& thread : churning(4, 1 << 30)) thread.detach();
  allocate(100 * kMiB);
  std::fflush(stdout);
  kill(getpid(), SIGTERM);
  for (;;) pause();
}

// A thread's own objects end after most of what it has.
int thread_end() {
  static thread_local struct Late {
    void* block = nullptr;
    ~Late() {
      cudaFree(block);
      cudaMalloc(&block, kMiB);
    }
  } late;
  std::thread([] { cudaMalloc(&late.block, 2 * kMiB); }).join();
  print_double();
  return 0;
}

// ---- children

int fork_rounds() {
  allocate(64 * kMiB);
  std::vector<std::thread> threads = churning(2, 1 << 30, 50);
  int wrong = 0;
  for (int round = 0; round < 100; ++round) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);              // a hang becomes a failure
      early.block = nullptr;  // a forked child cannot use CUDA
      if (round % 3 == 0) std::exit(0);
      if (round % 3 == 1) _exit(0);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (round % 3 == 2 ? !killed : !ended) ++wrong;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("wrong %d\n", wrong);
  return 0;
}

int fork_once() {
  allocate(4 * kMiB);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    allocate(7 * kMiB);
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

int exec_child(const char* self) {
  allocate(4 * kMiB);
  const char* const preload = std::getenv("LD_PRELOAD");
  std::printf("preload %s\n", preload != nullptr ? preload : "");
  std::fflush(stdout);
  return std::system((std::string(self) + " plain").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "plain") return plain();
  if (mode == "families") return families();
  if (mode == "physical") return physical();
  if (mode == "trouble") return trouble();
  if (mode == "nested") return nested();
  if (mode == "threads") return threads();
  if (mode == "exit") leave_while_others_allocate(std::exit);
  if (mode == "_exit") leave_while_others_allocate(_exit);
  if (mode == "quick_exit") leave_while_others_allocate(std::quick_exit);
  if (mode == "kill") leave_while_others_allocate([](int) { kill(getpid(), SIGKILL); });
  if (mode == "signal") return end_by_signal();
  if (mode == "thread_end") return thread_end();
  if (mode == "fork_rounds") return fork_rounds();
  if (mode == "fork_once") return fork_once();
  if (mode == "exec") return exec_child(argv[0]);
  std::fprintf(stderr, "cuda_memory: no mode '%s'\n", mode.c_str());
  return 2;
}
