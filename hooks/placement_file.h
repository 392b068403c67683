// A placement plan as a file: "lowtide.placement", version 1, as src/core/FORMAT.md has it.
//
// Thread-safe on different paths. Throws FileError with the path, the field and the fix; what was
// read passes find_fault().
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "hooks/placement_plan.h"

namespace lowtide::hooks {

[[nodiscard]] std::string to_json(const PlacementPlan& plan);
// `origin` names the text in errors.
[[nodiscard]] PlacementPlan parse_placement(std::string_view text, std::string_view origin);

void save_placement(const std::filesystem::path& path, const PlacementPlan& plan);
[[nodiscard]] PlacementPlan load_placement(const std::filesystem::path& path);

}  // namespace lowtide::hooks
