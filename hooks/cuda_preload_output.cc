#include "hooks/cuda_preload_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace lowtide::hooks {
namespace {

// At once or not at all: whoever reads the file finds a whole report.
bool replace_file(const char* path, const char* text, size_t length) noexcept {
  char beside[PATH_MAX + 32];
  snprintf(beside, sizeof beside, "%s.%d.new", path, static_cast<int>(getpid()));
  const int file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool whole = ::write(file, text, length) == static_cast<ssize_t>(length);
  close(file);
  if (whole && rename(beside, path) == 0) return true;
  unlink(beside);
  return false;
}

}  // namespace

void PreloadOutput::set_file(const char* pattern) noexcept {
  if (pattern == nullptr || *pattern == '\0') return;
  char folder[PATH_MAX] = "";
  const bool relative = pattern[0] != '/' && getcwd(folder, sizeof folder) != nullptr;
  snprintf(pattern_, sizeof pattern_, "%s%s%s", relative ? folder : "", relative ? "/" : "",
           pattern);
}

void PreloadOutput::name_file(bool add_number) noexcept {
  char number[16];
  snprintf(number, sizeof number, "%d", static_cast<int>(getpid()));
  size_t length = 0;
  const auto add = [&](const char* part, size_t size) {
    for (size_t i = 0; i < size && length + 1 < sizeof path_; ++i) path_[length++] = part[i];
  };
  for (const char* at = pattern_; *at != '\0';) {
    const bool is_number = at[0] == '%' && at[1] == 'p';
    if (is_number) {
      add(number, strlen(number));
      add_number = false;
    } else {
      add(at, 1);
    }
    at += is_number ? 2 : 1;
  }
  if (add_number && length > 0) {
    add(".", 1);
    add(number, strlen(number));
  }
  path_[length] = '\0';
}

void PreloadOutput::keep_stderr() noexcept {
  constexpr int kFarAway = 512;
  const int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kFarAway);
  if (copy >= 0) messages_ = copy;
}

void PreloadOutput::drop_stderr() noexcept {
  if (messages_ != STDERR_FILENO) close(messages_);
  messages_ = STDERR_FILENO;
}

void PreloadOutput::put(const char* text, size_t length) const noexcept {
  while (length > 0) {
    const ssize_t written = ::write(messages_, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text += written;
    length -= static_cast<size_t>(written);
  }
}

void PreloadOutput::say(const char* what, const char* with, const char* end) const noexcept {
  char line[PATH_MAX + 256];
  snprintf(line, sizeof line, "lowtide: %s%s%s\n", what, with, end);
  put(line, strlen(line));
}

void PreloadOutput::write(const ReportHeader& header, const PreloadFigures& figures) noexcept {
  if (!has_file() || header.nothing != nullptr) {
    put(text_, write_report_text(header, figures, text_));
  }
  if (!has_file()) return;
  const size_t length = write_report_json(header, figures, text_);
  if (replace_file(path_, text_, length) || failed_) return;
  failed_ = true;
  char end[128];
  snprintf(end, sizeof end, "': %s", strerrordesc_np(errno));
  say("cannot write '", path_, end);
}

}  // namespace lowtide::hooks
