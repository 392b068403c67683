// Columns of text, as wide as their widest cell: the first one flush left, the others flush right
// (numbers), the last one flush left too where it holds words.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header, bool last_is_words = false)
      : last_is_words_(last_is_words) {
    rows_.push_back(std::move(header));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out, int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  bool last_is_words_;
};

// "12.3 %"; whole / 0 is "-".
[[nodiscard]] std::string percent(int64_t part, int64_t whole);
// A name from a file as it may be printed: control characters replaced, at most `width` long.
[[nodiscard]] std::string printable(const std::string& name, size_t width = 48);

}  // namespace lowtide::cli
