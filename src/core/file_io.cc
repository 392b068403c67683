#include "core/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>

#include "core/bytes.h"
#include "core/error.h"
#include "core/trace_file.h"

namespace lowtide {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const { return fd_; }
  // close() can report a write that failed late (network file systems, quotas).
  [[nodiscard]] bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const char* verb, int error,
                       const char* fix) {
  throw FileError("cannot " + std::string(verb) + " '" + path.string() +
                  "': " + std::generic_category().message(error) + ". Fix: " + fix);
}

void write_all(int fd, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(path, "write", errno, "free space there or choose another folder");
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Makes the rename itself durable. Not every file system can; the file is whole either way.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) (void)::fsync(fd.get());
}

}  // namespace

std::string read_whole_file(const std::filesystem::path& path) {
  static constexpr char kFix[] = "check the path and its permissions";
  // O_NONBLOCK: a FIFO without a writer must be refused, not waited for.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail(path, "open", errno, kFix);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) fail(path, "read", errno, kFix);
  if (S_ISDIR(info.st_mode)) fail(path, "read", EISDIR, "name a file inside it");
  if (!S_ISREG(info.st_mode)) {
    throw FileError("cannot read '" + path.string() +
                    "': it is not a regular file. Fix: copy it into a file first");
  }
  if (info.st_size > kMaxFileBytes) {
    throw FileError("'" + path.string() + "' has " + format_bytes(info.st_size) +
                    ", above the limit of " + format_bytes(kMaxFileBytes) +
                    ". Fix: check that it is a Lowtide file; probe fewer ops per step");
  }
  std::string text;
  try {
    text.resize(static_cast<size_t>(info.st_size));
  } catch (const std::bad_alloc&) {
    fail(path, "read", ENOMEM, "free memory and try again");
  }
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "read", errno, kFix);
    if (n == 0) break;  // it shrank meanwhile; the parser will say what is missing
    filled += static_cast<size_t>(n);
  }
  text.resize(filled);
  return text;
}

void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  static constexpr char kFix[] = "check that its folder exists and can be written to";
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw FileError("cannot write '" + path.string() +
                    "': something there is not a regular file. Fix: choose another name");
  }
  static std::atomic<unsigned> counter{0};
  std::filesystem::path temporary = path;
  temporary += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  // O_EXCL: never follows a link that somebody planted under this name.
  Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd.get() < 0) fail(path, "write", errno, kFix);
  try {
    write_all(fd.get(), text, path);
    if (::fsync(fd.get()) != 0) fail(path, "write", errno, kFix);
    if (!fd.close()) fail(path, "write", errno, kFix);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "write", errno, kFix);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

}  // namespace lowtide
