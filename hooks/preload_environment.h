// What Lowtide's preloaded libraries ask of the environment and of themselves. Plain C, for their
// constructors: the environment is changed only while the process has one thread.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* 1: set, and neither empty nor "0". */
int lowtide_preload_is_set(const char* variable);
/* File of the library that has `inside`; NULL when it cannot be told. */
const char* lowtide_preload_own_path(const void* inside);
/* Takes the library out of LD_PRELOAD: programs that this one starts run without it. */
void lowtide_preload_leave(const char* library);

#ifdef __cplusplus
}
#endif
