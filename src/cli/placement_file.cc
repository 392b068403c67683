#include "cli/placement_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "cli/text_table.h"
#include "core/error.h"
#include "core/file_io.h"

namespace lowtide::cli {
namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : path_(path.string()), text_(read_whole_file(path)) {}

  PlacementInstance read() && {
    for (std::string_view rest = text_; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      ++line_;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.empty()) continue;
      instance_.header.empty() ? take_header(line) : take_row(line);
    }
    if (instance_.buffers.empty()) fail("no buffer. Fix: a header and a line for each buffer");
    if (const auto bad = hooks::find_bad_buffer(instance_.buffers)) {
      line_ = lines_[bad->index];
      fail("buffer " + printable(ids_[bad->index]) + " " + bad->fault);
    }
    return std::move(instance_);
  }

 private:
  enum Column : size_t { kId, kLower, kUpper, kSize, kAlignment, kColumns };
  static constexpr std::string_view kNames[kColumns] = {"id", "lower", "upper", "size",
                                                        "alignment"};

  [[noreturn]] void fail(const std::string& wrong) const {
    throw FileError(path_ + ":" + std::to_string(std::max(line_, 1)) + ": " + wrong);
  }

  std::vector<std::string_view> cells_of(std::string_view line) const {
    if (line.find('"') != std::string_view::npos) fail("a quoted cell. Fix: cells without quotes");
    std::vector<std::string_view> cells;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(',', begin), line.size());
      cells.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    return cells;
  }

  void take_header(std::string_view line) {
    instance_.header = line;
    const std::vector<std::string_view> cells = cells_of(line);
    width_ = cells.size();
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i] == "gaps" || cells[i] == "offset") {
        fail("column '" + std::string(cells[i]) + "' is not supported. Fix: leave it out");
      }
      const auto* const name = std::find(std::begin(kNames), std::end(kNames), cells[i]);
      if (name == std::end(kNames)) continue;
      std::optional<size_t>& column = columns_[static_cast<size_t>(name - std::begin(kNames))];
      if (column) fail("two columns '" + std::string(*name) + "'. Fix: one");
      column = i;
    }
    for (const Column needed : {kId, kLower, kUpper, kSize}) {
      if (!columns_[needed]) {
        fail("no column '" + std::string(kNames[needed]) +
             "'. Fix: a header that names id, lower, upper and size");
      }
    }
  }

  void take_row(std::string_view line) {
    const std::vector<std::string_view> cells = cells_of(line);
    if (cells.size() != width_) {
      fail(std::to_string(cells.size()) + " cells under a header of " + std::to_string(width_));
    }
    const std::string id(cells[*columns_[kId]]);
    if (id.empty()) fail("the id is empty. Fix: one of its own for each buffer");
    const auto [first, is_new] = first_line_.emplace(id, line_);
    if (!is_new) {
      fail("id " + printable(id) + " is that of line " + std::to_string(first->second) +
           " too. Fix: one of its own for each buffer");
    }
    hooks::PlacedBuffer buffer;
    buffer.lower = number(cells, kLower);
    buffer.upper = number(cells, kUpper);
    buffer.bytes = number(cells, kSize);
    if (columns_[kAlignment]) buffer.alignment = number(cells, kAlignment);
    instance_.buffers.push_back(buffer);
    instance_.rows.emplace_back(line);
    ids_.push_back(id);
    lines_.push_back(line_);
  }

  int64_t number(const std::vector<std::string_view>& cells, Column column) const {
    const std::string_view cell = cells[*columns_[column]];
    const std::string named =
        std::string(kNames[column]) + " '" + printable(std::string(cell)) + "' ";
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error == std::errc::result_out_of_range) fail(named + "is beyond 2^63 - 1");
    if (error != std::errc() || end != cell.data() + cell.size()) {
      fail(named + "is not a whole number");
    }
    if (value < 0) fail(named + "is negative. Fix: 0 or more");
    return value;
  }

  const std::string path_, text_;
  int line_ = 0;
  size_t width_ = 0;
  std::optional<size_t> columns_[kColumns];
  PlacementInstance instance_;
  std::vector<std::string> ids_;                     // one per buffer
  std::vector<int> lines_;                           // one per buffer
  std::unordered_map<std::string, int> first_line_;  // by id
};

}  // namespace

PlacementInstance read_placement_instance(const std::filesystem::path& path) {
  return Reader(path).read();
}

void write_placement_solution(const PlacementInstance& instance,
                              const std::vector<int64_t>& offsets,
                              const std::filesystem::path& path) {
  std::string text = instance.header + ",offset\n";
  for (size_t i = 0; i < offsets.size(); ++i) {
    text += instance.rows[i] + "," + std::to_string(offsets[i]) + "\n";
  }
  write_whole_file(path, text);
}

}  // namespace lowtide::cli
