#include "cli/plot.h"

#include <algorithm>
#include <ostream>

namespace lowtide::cli {
namespace {

constexpr size_t kWidth = 60, kHeight = 12;

size_t cell(double value, double least, double most, size_t cells) {
  if (!(most > least)) return 0;
  const double share = (value - least) / (most - least);
  return static_cast<size_t>(share * static_cast<double>(cells - 1) + 0.5);
}

}  // namespace

void print_plot(std::ostream& out, const std::vector<PlotPoint>& points, const PlotLabels& labels) {
  const auto by_x = [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; };
  const auto by_y = [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; };
  const auto [left, right] = std::minmax_element(points.begin(), points.end(), by_x);
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_y);
  std::vector<std::string> rows(kHeight, std::string(kWidth, ' '));
  for (const PlotPoint& point : points) {
    rows[kHeight - 1 - cell(point.y, low->y, high->y, kHeight)]
        [cell(point.x, left->x, right->x, kWidth)] = '*';
  }
  const size_t margin = std::max(labels.lowest_y.size(), labels.highest_y.size());
  for (size_t i = 0; i < kHeight; ++i) {
    std::string label = i == 0 ? labels.highest_y : i + 1 == kHeight ? labels.lowest_y : "";
    label.insert(0, margin - label.size(), ' ');
    const std::string line = "  " + label + " |" + rows[i];
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  const std::string indent(margin + 3, ' ');
  out << indent << '+' << std::string(kWidth, '-') << '\n';
  const size_t used = labels.lowest_x.size() + labels.highest_x.size();
  const size_t gap = used < kWidth ? kWidth - used : 1;
  out << indent << ' ' << labels.lowest_x << std::string(gap, ' ') << labels.highest_x
      << "  extra time\n";
}

}  // namespace lowtide::cli
