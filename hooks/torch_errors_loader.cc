#include "hooks/torch_errors_loader.h"

#include <dlfcn.h>

#include "hooks/sibling_library.h"

namespace lowtide::hooks {

TorchErrorThrower torch_out_of_memory_thrower() noexcept {
  // Not ours to load: a second torch would throw errors that nobody catches.
  if (dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return nullptr;
  void* const library = open_sibling_library(
      reinterpret_cast<const void*>(&torch_out_of_memory_thrower), "liblowtide_torch_errors.so");
  if (library == nullptr) return nullptr;
  return reinterpret_cast<TorchErrorThrower>(dlsym(library, "lowtide_throw_torch_out_of_memory"));
}

}  // namespace lowtide::hooks
