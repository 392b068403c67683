#include "runtime/device_memory.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>

#include "core/error.h"
#include "hooks/sibling_library.h"
#include "hooks/torch_cpu_memory.h"

namespace lowtide::runtime {
namespace {

using CudaMemory = hooks::TrainingMemory* (*)(int device, std::string* why_not);

// It lies beside this library; a program that trains on the CPU never loads it.
CudaMemory load_cuda_memory() {
#ifdef LOWTIDE_CUDA_LIBRARY
  void* const library = hooks::open_sibling_library(
      reinterpret_cast<const void*>(&load_cuda_memory), LOWTIDE_CUDA_LIBRARY);
  void* const make = library == nullptr ? nullptr : dlsym(library, "lowtide_cuda_training_memory");
  if (make == nullptr) {
    const char* const why = dlerror();
    throw InvalidInput(std::string("Lowtide's CUDA library cannot be used: ") +
                       (why == nullptr ? LOWTIDE_CUDA_LIBRARY : why) +
                       ". Fix: install Lowtide's libraries of one build into one folder");
  }
  return reinterpret_cast<CudaMemory>(make);
#else
  throw InvalidInput(
      "this Lowtide was built without CUDA. Fix: build it with a torch that has CUDA");
#endif
}

}  // namespace

c10::Device device_from_text(const std::string& text) {
  try {
    c10::Device device(text);
    if (device.is_cuda() && !device.has_index()) device.set_index(0);
    if (device.is_cpu() || device.is_cuda()) return device;
  } catch (const c10::Error&) {
    // Said below, in our words.
  }
  throw InvalidInput("device '" + text +
                     "' is none that a session can train on. Fix: cpu, cuda or "
                     "cuda:1");
}

std::unique_ptr<hooks::TrainingMemory> memory_of(c10::Device device) {
  if (device.is_cpu()) return hooks::make_torch_cpu_memory();
  if (!at::globalContext().hasCUDA()) {
    throw InvalidInput("device " + device.str() +
                       ": torch sees no CUDA device in this process. Fix: link or load "
                       "libtorch_cuda.so before the session begins, on a machine with a GPU");
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  std::string why_not;
  std::unique_ptr<hooks::TrainingMemory> memory(load_cuda_memory()(device.index(), &why_not));
  if (memory == nullptr) throw InvalidInput("device " + device.str() + ": " + why_not);
  return memory;
}

}  // namespace lowtide::runtime
