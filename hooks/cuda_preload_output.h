// Where door C's words go: stderr, and the file of the report where one is named. Constant-
// initialized and never destroyed. Neither heap nor stdio streams: works before main and after
// everybody's exit handlers, and in a handler of a signal.
//
// Thread safety: none but for say(); whoever writes reports has a lock of his own.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <cstddef>

#include "hooks/cuda_preload_report.h"

namespace lowtide::hooks {

class PreloadOutput {
 public:
  constexpr PreloadOutput() = default;
  PreloadOutput(const PreloadOutput&) = delete;
  PreloadOutput& operator=(const PreloadOutput&) = delete;

  // The file that reports go to; relative to where the process is now. Null or empty: to stderr.
  void set_file(const char* pattern) noexcept;
  // For this process: each "%p" becomes its number; where there is none and `add_number` is set, it
  // is added at the end.
  void name_file(bool add_number) noexcept;
  [[nodiscard]] bool has_file() const noexcept { return path_[0] != '\0'; }

  // Many programs close stderr when they end, and the report comes after that: a copy is kept,
  // under a number that the program gets for none of its own files.
  void keep_stderr() noexcept;
  void drop_stderr() noexcept;

  // To the file, or to stderr as text; that nothing was intercepted is said there in any case.
  void write(const ReportHeader& header, const PreloadFigures& figures) noexcept;
  // One line, in three parts.
  void say(const char* what, const char* with, const char* end) const noexcept;

 private:
  void put(const char* text, size_t length) const noexcept;

  int messages_ = STDERR_FILENO;
  bool failed_ = false;  // that the file cannot be written has been said
  char pattern_[2 * PATH_MAX] = "";
  char path_[PATH_MAX] = "";
  char text_[kReportBytes] = "";
};

}  // namespace lowtide::hooks
