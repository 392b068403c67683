#include "hooks/cuda_preload_process.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "hooks/cuda_preload_output.h"
#include "hooks/cuda_preload_real.h"
#include "hooks/cuda_preload_report.h"
#include "hooks/preload_environment.h"

namespace lowtide::hooks {
namespace {

// Never destroyed: programs call CUDA until their very end.
union Everlasting {
  constexpr Everlasting() : account() {}
  ~Everlasting() {}
  PreloadAccount account;
};
constinit Everlasting everlasting;
PreloadAccount& the_account() noexcept { return everlasting.account; }

// The runtime and the driver have the same number for it.
constexpr int kOutOfMemory = cudaErrorMemoryAllocation;
static_assert(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY) == kOutOfMemory);

constinit std::atomic<bool> off{false};
// In the block of thread-local memory that is there from a thread's first instruction to its last.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool inside = false;

constinit RealFunction<cudaError_t(int*)> get_device("cudaGetDevice");

// The lock guards all of it but what the constructor alone writes.
struct Report {
  LightLock lock;
  bool finished = false;  // the last one was written
  bool follows = false;
  bool had_runtime = false;  // before main
  bool is_first = true;      // not started by another watched process
  pid_t process = 0;
  PreloadFigures figures;
  PreloadOutput output;
};
constinit Report report;

// What a look around must not cost: a handler of a signal that came inside malloc may be what ends
// the process, and the dynamic linker calls malloc.
enum class Looks : bool { no, yes };

const char* why_nothing(Looks looks) noexcept {
  const bool look = looks == Looks::yes;
  if (report.had_runtime || (look && find_real("cudaMalloc") != nullptr)) {
    return "the CUDA runtime is in this process, but no memory was asked for through it";
  }
  if (look && has_cuda_driver()) {
    return "CUDA's driver is in this process without the shared runtime, which is linked into the "
           "program, or passed by. Fix: link it as a shared library (nvcc -cudart shared)";
  }
  if (report.follows) return "this process has no CUDA";
  return "this process has no CUDA. Fix: if it starts the one that has, watch those too "
         "(lowtide run --watch-cuda --follow, or LOWTIDE_CUDA_FOLLOW=1)";
}

// REQUIRES report.lock.
void write_report(bool complete, Looks looks) noexcept {
  const bool whole = the_account().read(report.figures);
  const char* const nothing = intercepted_any(report.figures) ? nullptr : why_nothing(looks);
  // Of those that a watched process started only the ones that use CUDA have something to say.
  if (nothing != nullptr && !report.is_first) return;
  const ReportHeader header{program_invocation_short_name, static_cast<int>(report.process),
                            complete && whole, nothing};
  report.output.write(header, report.figures);
}

void peak_has_grown() noexcept {
  if (!report.output.has_file()) return;
  const int kept_errno = errno;
  {
    const std::lock_guard held(report.lock);
    if (!report.finished) write_report(false, Looks::no);
  }
  errno = kept_errno;
}

void end_of_process(Looks looks) noexcept {
  // A copy of the process that was made without fork() has nothing to say.
  if (off || getpid() != report.process) return;
  // A handler of a signal that came while its thread wrote a report may be what ends the process.
  for (int nap = 0; !report.lock.try_lock(); ++nap) {
    if (nap == 1000) return;
    usleep(1000);
  }
  if (!report.finished) write_report(true, looks);
  report.finished = true;
  report.lock.unlock();
}

void begin_report() noexcept {
  report.process = getpid();
  report.output.name_file(!report.is_first);
}

void before_fork() noexcept {
  report.lock.lock();
  the_account().lock();
}
void after_fork() noexcept {
  the_account().unlock();
  report.lock.unlock();
}
void in_child() noexcept {
  after_fork();
  off = off || !report.follows;
  if (off) {  // whoever waits for the end of stderr does not wait for a daemon
    report.output.drop_stderr();
    return;
  }
  the_account().forget_all();
  report.is_first = false;
  report.finished = false;
  begin_report();
}

const char* sanitizer() noexcept {
  constexpr const char* kNames[][2] = {{"__asan_init", "the address sanitizer"},
                                       {"__tsan_init", "the thread sanitizer"},
                                       {"__msan_init", "the memory sanitizer"}};
  for (const auto& [symbol, name] : kNames) {
    if (dlsym(RTLD_DEFAULT, symbol) != nullptr) return name;
  }
  dlerror();
  return nullptr;
}

// Whether this process is watched. What it starts finds the library in LD_PRELOAD, and its number:
// a program that takes this one's place (env, nice, sh at its end) has the same and is watched in
// its stead; others take the library out. Where CUDA is here already this one has done so itself.
bool read_environment() noexcept {
  constexpr const char* kFirst = "LOWTIDE_CUDA_FIRST_PROCESS";
  char number[16];
  snprintf(number, sizeof number, "%d", static_cast<int>(getpid()));
  const char* const first = getenv(kFirst);
  report.is_first = first == nullptr || strcmp(first, number) == 0;
  report.follows = lowtide_preload_is_set("LOWTIDE_CUDA_FOLLOW") != 0;
  if (first == nullptr) setenv(kFirst, number, 1);
  report.had_runtime = find_real("cudaMalloc") != nullptr;
  if (!report.follows && (!report.is_first || report.had_runtime)) {
    const char* const self = lowtide_preload_own_path(&report);
    if (self != nullptr) lowtide_preload_leave(self);
  }
  report.output.set_file(getenv("LOWTIDE_CUDA_REPORT"));
  begin_report();
  return report.is_first || report.follows;
}

[[gnu::constructor]] void enter_program() {
  if (lowtide_preload_is_set("LOWTIDE_DISABLE") != 0 || !read_environment()) {
    off = true;
    return;
  }
  report.output.keep_stderr();
  if (const char* const name = sanitizer(); name != nullptr) {
    off = true;
    report.output.say("this program runs under ", name,
                      ": its CUDA memory is not watched. Fix: build it without");
    return;
  }
  pthread_atfork(before_fork, after_fork, in_child);
  at_quick_exit([] { end_of_process(Looks::yes); });
}

[[gnu::destructor]] void leave_program() { end_of_process(Looks::yes); }

}  // namespace

Interception::Interception() noexcept
    : outermost_(!inside), counts_(outermost_ && !off.load(std::memory_order_relaxed)) {
  inside = true;
}
Interception::~Interception() {
  if (outermost_) inside = false;
}

PreloadAccount* Interception::account() const noexcept {
  return counts_ ? &the_account() : nullptr;
}

int Interception::current_device() noexcept {
  int device = 0;
  return get_device(&device) == cudaSuccess ? device : 0;
}

bool Interception::freeing(uint64_t address) const noexcept {
  return counts_ && the_account().freed(address);
}

// Of failures only those count that more memory would have prevented: torch, for one, tries kinds
// of physical memory that the device may not have.
void Interception::note_allocation(int place, int error, uint64_t address, size_t bytes) noexcept {
  if (place == kCurrentDevice) place = current_device();
  const auto size = static_cast<int64_t>(bytes);
  if (error == kOutOfMemory) the_account().allocation_failed(place, size);
  if (error == 0 && the_account().allocated(place, address, size)) peak_has_grown();
}

void Interception::note_creation(int place, int error, uint64_t handle, size_t bytes) noexcept {
  const auto size = static_cast<int64_t>(bytes);
  if (error == kOutOfMemory) the_account().allocation_failed(place, size);
  if (error == 0 && the_account().created(place, handle, size)) peak_has_grown();
}

void Interception::note_failed_free() noexcept { the_account().free_failed(); }

}  // namespace lowtide::hooks

// Shells and Python's workers leave without exit handlers. In a child of vfork(), which shares this
// memory, there is nothing to say.
extern "C" [[gnu::visibility("default"), noreturn]] void _exit(int status) {
  lowtide::hooks::end_of_process(lowtide::hooks::Looks::no);
  for (;;) syscall(SYS_exit_group, status);
}
extern "C" [[gnu::visibility("default"), noreturn]] void _Exit(int status) noexcept {
  _exit(status);
}
