#include "hooks/cuda_preload_real.h"

#include <dlfcn.h>

namespace lowtide::hooks {
namespace {

void* loaded(const char* library) noexcept { return dlopen(library, RTLD_LAZY | RTLD_NOLOAD); }

}  // namespace

void* find_real(const char* name) noexcept {
  if (void* const next = dlsym(RTLD_NEXT, name); next != nullptr) return next;
  for (const char* runtime : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    void* const library = loaded(runtime);
    if (library == nullptr) continue;
    if (void* const found = dlsym(library, name); found != nullptr) return found;
  }
  dlerror();  // the program's next one is its own
  return nullptr;
}

bool has_cuda_driver() noexcept { return loaded("libcuda.so.1") != nullptr; }

}  // namespace lowtide::hooks
