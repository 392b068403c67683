#include "cli/frontier_chart.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "cli/text_table.h"
#include "core/bytes.h"

namespace lowtide::cli {
namespace {

using planner::FrontierPoint;

// Okabe and Ito's palette: told apart by people who see colours differently.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000", "#8a8a00"};
constexpr double kWidth = 860, kHeight = 460;
constexpr double kLeft = 84, kRight = 200, kTop = 44, kBottom = 56;
constexpr int kTicks = 5;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

int64_t peak(const FrontierPoint& point) { return point.predicted.peak_reserved_bytes; }

class Chart {
 public:
  Chart(const Trace& trace, const std::vector<ChartLine>& lines) : trace_(trace), lines_(lines) {
    for (const ChartLine& line : lines) {
      for (const FrontierPoint& point : *line.points) {
        low_ = std::min(low_, peak(point));
        high_ = std::max(high_, peak(point));
        least_ns_ = std::min(least_ns_, point.predicted.recompute_ns);
        most_ns_ = std::max(most_ns_, point.predicted.recompute_ns);
      }
    }
  }

  std::string draw() {
    svg_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) + " " +
           number(kHeight) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
           "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(kLeft, 24, "start", escaped(trace_.settings.name) + ": what each budget costs");
    axes();
    for (size_t i = 0; i < lines_.size(); ++i) line(i);
    return svg_ + "</svg>\n";
  }

 private:
  [[nodiscard]] double x(int64_t bytes) const {
    const auto span = static_cast<double>(std::max<int64_t>(high_ - low_, 1));
    return kLeft + static_cast<double>(bytes - low_) / span * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(int64_t ns) const {
    const auto span = static_cast<double>(std::max<int64_t>(most_ns_ - least_ns_, 1));
    return kHeight - kBottom -
           static_cast<double>(ns - least_ns_) / span * (kHeight - kTop - kBottom);
  }

  void text(double at_x, double at_y, const char* anchor, const std::string& content) {
    svg_ += "<text x=\"" + number(at_x) + "\" y=\"" + number(at_y) + "\" text-anchor=\"" + anchor +
            "\">" + content + "</text>\n";
  }
  void stroke(double x1, double y1, double x2, double y2, const char* colour) {
    svg_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
            "\" y2=\"" + number(y2) + "\" stroke=\"" + colour + "\"/>\n";
  }

  void axes() {
    const double bottom = kHeight - kBottom;
    for (int i = 0; i <= kTicks; ++i) {
      const int64_t bytes = low_ + (high_ - low_) / kTicks * i;
      const int64_t ns = least_ns_ + (most_ns_ - least_ns_) / kTicks * i;
      stroke(x(bytes), kTop, x(bytes), bottom, "#e0e0e0");
      stroke(kLeft, y(ns), kWidth - kRight, y(ns), "#e0e0e0");
      text(x(bytes), bottom + 18, "middle", format_bytes(bytes));
      text(kLeft - 8, y(ns) + 4, "end", percent(ns, trace_.step_ns));
    }
    stroke(kLeft, bottom, kWidth - kRight, bottom, "black");
    stroke(kLeft, kTop, kLeft, bottom, "black");
    text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", "peak memory of a step");
    text(kLeft, kTop - 6, "middle", "extra time");
  }

  void line(size_t index) {
    const char* colour = kColours[index % std::size(kColours)];
    // Past the palette's end the lines are dashed.
    const char* dash = index < std::size(kColours) ? "" : "\" stroke-dasharray=\"5 3";
    const std::vector<FrontierPoint>& points = *lines_[index].points;
    // A plan holds from its own peak up to the next larger one's.
    std::string path;
    for (const FrontierPoint& point : points) {
      const std::string here = number(y(point.predicted.recompute_ns));
      if (path.empty()) {
        path = "M" + number(x(high_)) + " " + here;
      } else {
        path += "V" + here;
      }
      path += "H" + number(x(peak(point)));
    }
    svg_ += "<path d=\"" + path + "\" fill=\"none\" stroke-width=\"1.6\" stroke=\"" + colour +
            dash + "\"><title>" + escaped(lines_[index].name) + "</title></path>\n";
    const double label_y = kTop + 8 + 20 * static_cast<double>(index);
    svg_ += "<path d=\"M" + number(kWidth - kRight + 16) + " " + number(label_y) +
            "h24\" stroke-width=\"2\" stroke=\"" + colour + dash + "\"/>\n";
    text(kWidth - kRight + 46, label_y + 4, "start", escaped(lines_[index].name));
  }

  const Trace& trace_;
  const std::vector<ChartLine>& lines_;
  int64_t low_ = INT64_MAX;
  int64_t high_ = 0;
  int64_t least_ns_ = 0;  // below zero where a joint plan beats the one that keeps everything
  int64_t most_ns_ = 0;
  std::string svg_;
};

}  // namespace

std::string frontier_svg(const Trace& trace, const std::vector<ChartLine>& lines) {
  return Chart(trace, lines).draw();
}

std::string frontier_html(const Trace& trace, const std::vector<ChartLine>& lines) {
  std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                     escaped(trace.settings.name) +
                     ": frontier</title>\n<style>body{font-family:sans-serif;max-width:62em;"
                     "margin:2em auto}table{border-collapse:collapse}td,th{padding:.2em .8em;"
                     "text-align:right;border-bottom:1px solid #ddd}td:first-child{text-align:left}"
                     "</style></head><body>\n" +
                     frontier_svg(trace, lines) +
                     "<table><tr><th>strategy</th><th>peak</th><th>bytes</th><th>step</th>"
                     "<th>extra time</th><th>dropped</th></tr>\n";
  for (const ChartLine& line : lines) {
    for (const FrontierPoint& point : *line.points) {
      html += "<tr><td>" + escaped(line.name) + "</td><td>" + format_bytes(peak(point)) +
              "</td><td>" + std::to_string(peak(point)) + "</td><td>" +
              format_duration(point.predicted.step_ns) + "</td><td>" +
              percent(point.predicted.recompute_ns, trace.step_ns) + "</td><td>" +
              std::to_string(point.decisions.size()) + "</td></tr>\n";
    }
  }
  return html + "</table></body></html>\n";
}

}  // namespace lowtide::cli
