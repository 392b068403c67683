/* liblowtide_preload.so: brings Lowtide into a program that knows nothing of it (LD_PRELOAD).
 *
 * A C library with nothing but the C library in NEEDED. Its constructor runs before main and before
 * the program's own static objects:
 * - no torch in the process: nothing (well under 5 ms); launchers such as sh hand it on
 * - another torch's version: one line on stderr, the program runs plain
 * - LOWTIDE_DISABLE=1: nothing
 * - else: loads liblowtide_torch beside this file and calls lowtide_run_start()
 *
 * Where it takes effect it first takes itself out of LD_PRELOAD: programs that the program starts
 * run clean. Overrides no symbol, installs no signal handler. dlopen of torch later is left alone.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/preload_environment.h"

#define TORCH "libtorch_cpu.so"

static void* loaded(const char* library) { return dlopen(library, RTLD_LAZY | RTLD_NOLOAD); }

static void say_if_torch_came_later(void) {
  if (loaded(TORCH) != NULL) {
    fprintf(
        stderr,
        "lowtide: this program loaded torch after it had started: it ran plain, without a budget. "
        "Fix: link it with torch\n");
  }
}

/* torch's own C entry: major << 56 | minor << 48 | patch << 40. */
static int torch_matches(void* torch) {
  uint64_t (*version)(void) = NULL;
  *(void**)&version = dlsym(torch, "aoti_torch_abi_version");
  if (version == NULL) {
    fprintf(stderr, "lowtide: this program's torch does not tell its version: it runs plain\n");
    return 0;
  }
  const unsigned major = (unsigned)(version() >> 56) & 0xFF;
  const unsigned minor = (unsigned)(version() >> 48) & 0xFF;
  if (major == LOWTIDE_TORCH_MAJOR && minor == LOWTIDE_TORCH_MINOR) return 1;
  fprintf(stderr,
          "lowtide: this program uses torch %u.%u, this Lowtide was built for torch %d.%d: it runs "
          "plain. Fix: use a Lowtide that was built for torch %u.%u\n",
          major, minor, LOWTIDE_TORCH_MAJOR, LOWTIDE_TORCH_MINOR, major, minor);
  return 0;
}

static void* load_beside(const char* self, const char* library) {
  char path[PATH_MAX];
  const char* slash = strrchr(self, '/');
  const int folder = slash == NULL ? 0 : (int)(slash - self) + 1;
  const int length = snprintf(path, sizeof path, "%.*s%s", folder, self, library);
  if (length < 0 || (size_t)length >= sizeof path) return NULL;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

__attribute__((constructor)) static void enter_program(void) {
  if (lowtide_preload_is_set("LOWTIDE_DISABLE")) return;
  void* torch = loaded(TORCH);
  if (torch == NULL) {
    atexit(say_if_torch_came_later);
    return;
  }
  const char* self = lowtide_preload_own_path((void*)&enter_program);
  if (self == NULL) return;
  lowtide_preload_leave(self);
  if (!torch_matches(torch)) return;
  if (loaded(LOWTIDE_TORCH_LIBRARY) != NULL) {
    fprintf(stderr, "lowtide: this program is linked with Lowtide: its own sessions decide\n");
    return;
  }
  void* runtime = load_beside(self, LOWTIDE_TORCH_LIBRARY);
  void (*start)(void) = NULL;
  if (runtime != NULL) *(void**)&start = dlsym(runtime, "lowtide_run_start");
  if (start == NULL) {
    fprintf(stderr, "lowtide: cannot load %s: %s; the program runs plain\n", LOWTIDE_TORCH_LIBRARY,
            dlerror());
    return;
  }
  start();
}
