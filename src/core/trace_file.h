// Trace and plan files: versioned JSON, documented field by field in FORMAT.md.
// Readers throw FileError (path, what is wrong, where) on malformed, truncated, oversized, wrong
// format or wrong version input, and nothing else; writers write to a temporary and rename, so a
// reader never sees half a file. Not thread-safe on the same path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide {

inline constexpr int kTraceFormatVersion = 1;
inline constexpr int kPlanFormatVersion = 1;
// A larger file is refused before it is read.
inline constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// What a file says it is, in whatever version. FileError when it is neither.
// An instance is a graph to plan, read by the planner (planner/instance.h).
enum class FileKind : uint8_t { trace, plan, instance };
[[nodiscard]] FileKind file_kind(const std::filesystem::path& path);

[[nodiscard]] std::string trace_to_json(const Trace& trace);
[[nodiscard]] Trace trace_from_json(std::string_view text, std::string_view origin = "trace");
void write_trace(const Trace& trace, const std::filesystem::path& path);
[[nodiscard]] Trace read_trace(const std::filesystem::path& path);

[[nodiscard]] std::string plan_to_json(const Plan& plan);
[[nodiscard]] Plan plan_from_json(std::string_view text, std::string_view origin = "plan");
void write_plan(const Plan& plan, const std::filesystem::path& path);
[[nodiscard]] Plan read_plan(const std::filesystem::path& path);

}  // namespace lowtide
