// Whole files in and out. Reading refuses what is not a regular file of at most kMaxFileBytes;
// writing goes through a temporary in the same folder, so that a reader sees the old file or the
// new one, never half of one, also after a power cut. Throws FileError (path, the system's words);
// on failure no temporary is left behind. Not thread-safe on the same path.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lowtide {

[[nodiscard]] std::string read_whole_file(const std::filesystem::path& path);
void write_whole_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lowtide
