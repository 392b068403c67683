#include "hooks/sibling_library.h"

#include <dlfcn.h>

#include <string>

namespace lowtide::hooks {

void* open_sibling_library(const void* own, const char* file_name) noexcept {
  try {
    Dl_info info{};
    if (dladdr(own, &info) == 0) return nullptr;
    std::string path = info.dli_fname;
    path.resize(path.find_last_of('/') + 1);
    path += file_name;
    return dlopen(path.c_str(), RTLD_NOW);
  } catch (...) {
    return nullptr;  // no host memory
  }
}

}  // namespace lowtide::hooks
