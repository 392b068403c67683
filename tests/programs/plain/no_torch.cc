// A program without torch. `no_torch LIBRARY` loads one while it runs.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  std::puts("no torch here");
  if (argc > 1) {
    std::printf("loaded: %s\n",
                dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) != nullptr ? "yes" : dlerror());
  }
  return 4;
}
