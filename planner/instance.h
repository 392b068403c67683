// Others' graphs: reads a `remat-instance` file into a joint trace (Execution::joint), on which
// strategies, simulator, checker and bound work as on any trace. Format: src/core/FORMAT.md.
//
// Tensor i becomes storage i. Inputs are external and weigh nothing: the peak of an instance does
// not count them. Throws FileError and nothing else. Units: bytes, ns.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/trace.h"

namespace lowtide::planner {

[[nodiscard]] Trace instance_from_json(std::string_view text, std::string_view origin = "instance");
[[nodiscard]] Trace read_instance(const std::filesystem::path& path);
// A trace file or an instance, by the format that the file names.
[[nodiscard]] Trace read_problem(const std::filesystem::path& path);

}  // namespace lowtide::planner
