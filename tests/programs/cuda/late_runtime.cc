// As Python does it: the CUDA runtime is loaded while the program runs, and for one plugin's eyes
// only. `late_runtime RUNTIME PLUGIN`: the plugin is linked with the runtime.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  void* const runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* const plugin = runtime != nullptr ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : nullptr;
  const auto run =
      reinterpret_cast<int (*)()>(plugin != nullptr ? dlsym(plugin, "run_plugin") : nullptr);
  if (run == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  return run();
}
