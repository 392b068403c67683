#include "cli/text_table.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace lowtide::cli {

void TextTable::print(std::ostream& out, int indent) const {
  std::vector<size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < width.size(); ++i) {
      const std::string space(width[i] - row[i].size(), ' ');
      const bool flush_left = i == 0 || (last_is_words_ && i + 1 == width.size());
      line += (i == 0 ? "" : "  ") + (flush_left ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

std::string percent(int64_t part, int64_t whole) {
  if (whole <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%",
                100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string printable(const std::string& name, size_t width) {
  std::string result = name.size() <= width ? name : name.substr(0, width - 3) + "...";
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  }
  return result;
}

}  // namespace lowtide::cli
