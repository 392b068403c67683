#include "hooks/torch_errors_loader.h"

#include <dlfcn.h>

#include <string>

namespace lowtide::hooks {

TorchErrorThrower torch_out_of_memory_thrower() noexcept {
  // Not ours to load: a second torch would throw errors that nobody catches.
  if (dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return nullptr;
  try {
    Dl_info own{};
    if (dladdr(reinterpret_cast<void*>(&torch_out_of_memory_thrower), &own) == 0) return nullptr;
    std::string path = own.dli_fname;
    path.resize(path.find_last_of('/') + 1);
    path += "liblowtide_torch_errors.so";
    void* const library = dlopen(path.c_str(), RTLD_NOW);
    if (library == nullptr) return nullptr;
    return reinterpret_cast<TorchErrorThrower>(dlsym(library, "lowtide_throw_torch_out_of_memory"));
  } catch (...) {
    return nullptr;
  }
}

}  // namespace lowtide::hooks
