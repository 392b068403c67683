#include "hooks/preload_environment.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int lowtide_preload_is_set(const char* variable) {
  const char* value = getenv(variable);
  return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

const char* lowtide_preload_own_path(const void* inside) {
  Dl_info info;
  return dladdr(inside, &info) != 0 ? info.dli_fname : NULL;
}

/* Entries are separated by ':' or ' '. */
void lowtide_preload_leave(const char* library) {
  const char* entries = getenv("LD_PRELOAD");
  if (entries == NULL) return;
  char* rest = malloc(strlen(entries) + 1);
  if (rest == NULL) return;
  size_t length = 0;
  while (*entries != '\0') {
    const size_t entry = strcspn(entries, ": ");
    const int is_library = entry == strlen(library) && strncmp(entries, library, entry) == 0;
    if (entry > 0 && !is_library) {
      if (length > 0) rest[length++] = ':';
      memcpy(rest + length, entries, entry);
      length += entry;
    }
    entries += entry + (entries[entry] != '\0');
  }
  rest[length] = '\0';
  if (length > 0) {
    setenv("LD_PRELOAD", rest, 1);
  } else {
    unsetenv("LD_PRELOAD");
  }
  free(rest);
}
