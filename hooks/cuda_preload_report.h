// The report of door C as text for people or JSON for programs, into a buffer of the caller's: no
// heap, no stdio stream, no locale. What does not fit is cut off; kReportBytes holds any report.
// Nothing is thrown.
#pragma once

#include <cstddef>

#include "hooks/cuda_preload_account.h"

namespace lowtide::hooks {

inline constexpr size_t kReportBytes = size_t{1} << 16;

struct ReportHeader {
  const char* program = "";
  int process = 0;
  bool complete = false;  // false: the process goes on
  // Why there is nothing to tell, with what helps; null where something is.
  const char* nothing = nullptr;
};

// Whether any request for memory was seen.
[[nodiscard]] bool intercepted_any(const PreloadFigures& figures) noexcept;

// Both return the length; the text ends with a newline and a null.
size_t write_report_text(const ReportHeader& header, const PreloadFigures& figures,
                         char (&out)[kReportBytes]) noexcept;
size_t write_report_json(const ReportHeader& header, const PreloadFigures& figures,
                         char (&out)[kReportBytes]) noexcept;

}  // namespace lowtide::hooks
