#include "hooks/cuda_preload_process.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

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

constinit std::atomic<bool> off{false};
// In the block of thread-local memory that is there from a thread's first instruction to its last.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool inside = false;

constinit RealFunction<cudaError_t(int*)> get_device("cudaGetDevice");

// Everything about the report; the lock guards all of it but what the constructor alone writes.
struct Report {
  LightLock lock;
  bool finished = false;  // the last one was written
  bool failed = false;    // that it cannot be written has been said
  bool follows = false;
  bool had_runtime = false;  // before main
  bool is_first = true;      // not started by another watched process
  pid_t process = 0;
  int messages = STDERR_FILENO;
  char pattern[2 * PATH_MAX] = "";
  char path[PATH_MAX] = "";
  char text[kReportBytes] = "";
  PreloadFigures figures;
};
constinit Report report;

void say(const char* text, size_t length) noexcept {
  while (length > 0) {
    const ssize_t written = write(report.messages, text, length);
    if (written <= 0) return;
    text += written;
    length -= static_cast<size_t>(written);
  }
}

template <typename... Arguments>
void say_line(const char* format, Arguments... arguments) noexcept {
  char line[PATH_MAX + 256];
  const int length = snprintf(line, sizeof line, format, arguments...);
  if (length > 0) say(line, strnlen(line, sizeof line));
}

// Of this process: `pattern` with each %p as this process's number; where there is none, processes
// that another one started add theirs at the end.
void name_report() noexcept {
  report.process = getpid();
  char number[16];
  snprintf(number, sizeof number, "%d", static_cast<int>(report.process));
  size_t length = 0;
  bool numbered = false;
  const auto add = [&](const char* part, size_t size) {
    for (size_t i = 0; i < size && length + 1 < sizeof report.path; ++i)
      report.path[length++] = part[i];
  };
  for (const char* at = report.pattern; *at != '\0';) {
    const bool is_number = at[0] == '%' && at[1] == 'p';
    if (is_number) add(number, strlen(number));
    if (!is_number) add(at, 1);
    numbered = numbered || is_number;
    at += is_number ? 2 : 1;
  }
  if (!numbered && !report.is_first && length > 0) {
    add(".", 1);
    add(number, strlen(number));
  }
  report.path[length] = '\0';
}

// At once or not at all: whoever reads the file finds a whole report.
bool replace_file(const char* path, const char* text, size_t length) noexcept {
  char beside[PATH_MAX + 16];
  snprintf(beside, sizeof beside, "%s.%d", path, static_cast<int>(getpid()));
  const int file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool whole = write(file, text, length) == static_cast<ssize_t>(length);
  close(file);
  if (whole && rename(beside, path) == 0) return true;
  unlink(beside);
  return false;
}

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
  if (report.path[0] == '\0' || nothing != nullptr) {
    say(report.text, write_report_text(header, report.figures, report.text));
  }
  if (report.path[0] == '\0') return;
  const size_t length = write_report_json(header, report.figures, report.text);
  if (replace_file(report.path, report.text, length) || report.failed) return;
  report.failed = true;
  say_line("lowtide: cannot write '%s': %s\n", report.path, strerrordesc_np(errno));
}

void peak_has_grown() noexcept {
  if (report.path[0] == '\0') return;
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
    if (report.messages != STDERR_FILENO) close(report.messages);
    report.messages = STDERR_FILENO;
    return;
  }
  the_account().forget_all();
  report.is_first = false;
  report.finished = false;
  name_report();
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

void read_path() noexcept {
  const char* const path = getenv("LOWTIDE_CUDA_REPORT");
  if (path == nullptr || *path == '\0') return;
  char folder[PATH_MAX] = "";  // the program may go elsewhere
  const bool relative = path[0] != '/' && getcwd(folder, sizeof folder) != nullptr;
  snprintf(report.pattern, sizeof report.pattern, "%s%s%s", relative ? folder : "",
           relative ? "/" : "", path);
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
  read_path();
  name_report();
  return report.is_first || report.follows;
}

// Many programs close stderr when they end, and this library ends after them. The number is one
// that the program gets for none of its own files.
void keep_messages() noexcept {
  constexpr int kFarAway = 512;
  const int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kFarAway);
  if (copy >= 0) report.messages = copy;
}

[[gnu::constructor]] void enter_program() {
  if (lowtide_preload_is_set("LOWTIDE_DISABLE") != 0 || !read_environment()) {
    off = true;
    return;
  }
  keep_messages();
  if (const char* const name = sanitizer(); name != nullptr) {
    off = true;
    say_line(
        "lowtide: this program runs under %s: its CUDA memory is not watched. Fix: build it "
        "without\n",
        name);
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

void Interception::note_allocation(int place, bool success, uint64_t address,
                                   size_t bytes) noexcept {
  if (place == kCurrentDevice) place = current_device();
  const auto size = static_cast<int64_t>(bytes);
  if (!success) {
    the_account().allocation_failed(place, size);
  } else if (the_account().allocated(place, address, size)) {
    peak_has_grown();
  }
}

void Interception::note_creation(int place, bool success, uint64_t handle, size_t bytes) noexcept {
  const auto size = static_cast<int64_t>(bytes);
  if (!success) {
    the_account().allocation_failed(place, size);
  } else if (the_account().created(place, handle, size)) {
    peak_has_grown();
  }
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
