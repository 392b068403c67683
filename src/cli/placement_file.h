// Placement instances as MiniMalloc's public format has them: CSV, a header line, then one buffer a
// line. Columns in any order: id, lower, upper (half-open lifetime), size (bytes) and, where there
// is one, alignment. Others are kept as they are, but for those that would change the problem:
// gaps and offset are refused. Cells have no quotes.
//
// Throws FileError with file and line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hooks/placement.h"

namespace lowtide::cli {

struct PlacementInstance {
  std::string header;             // the line as it stands in the file
  std::vector<std::string> rows;  // one per buffer
  std::vector<hooks::PlacedBuffer> buffers;
};

[[nodiscard]] PlacementInstance read_placement_instance(const std::filesystem::path& path);

// The instance with one more column: offset.
void write_placement_solution(const PlacementInstance& instance,
                              const std::vector<int64_t>& offsets,
                              const std::filesystem::path& path);

}  // namespace lowtide::cli
