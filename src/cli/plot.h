// A plot of falling peak over rising time, in characters.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lowtide::cli {

struct PlotPoint {
  double x = 0, y = 0;
};

struct PlotLabels {
  std::string lowest_y, highest_y, lowest_x, highest_x;
};

void print_plot(std::ostream& out, const std::vector<PlotPoint>& points, const PlotLabels& labels);

}  // namespace lowtide::cli
