// How `lowtide run` enters the program: the entry that the preload shim calls, and the process-wide
// handlers (exit, fork).
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/error.h"
#include "runtime/auto_session.h"

namespace lowtide::runtime {
namespace {

AutoSession* run = nullptr;  // never destroyed: ops run while the process ends

[[noreturn]] void refuse(const std::string& message) {
  std::fprintf(stderr, "lowtide: %s\n", message.c_str());
  _exit(kExitBadInput);
}

}  // namespace
}  // namespace lowtide::runtime

extern "C" void lowtide_run_start() {
  using namespace lowtide::runtime;  // NOLINT(google-build-using-namespace)
  try {
    run = new AutoSession(run_options_from_environment());
    run->start();
    // After the allocator's own handlers, so that a fork takes the session's lock first.
    pthread_atfork([] { run->before_fork(); }, [] { run->after_fork_in_parent(); },
                   [] { run->after_fork_in_child(); });
    std::atexit([] { run->finish(); });
  } catch (const lowtide::Error& error) {
    refuse(error.message());
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}
