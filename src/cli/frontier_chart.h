// Frontiers as a drawing: extra time over peak memory, one stepped line per strategy. A file of its
// own (SVG), or a page around it (HTML) that needs nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"
#include "planner/planner.h"

namespace lowtide::cli {

struct ChartLine {
  std::string name;
  const std::vector<planner::FrontierPoint>* points = nullptr;  // falling peak, never empty
};

// Text from files is escaped. Bytes and times are the plans' predictions.
[[nodiscard]] std::string frontier_svg(const Trace& trace, const std::vector<ChartLine>& lines);
[[nodiscard]] std::string frontier_html(const Trace& trace, const std::vector<ChartLine>& lines);

}  // namespace lowtide::cli
