// Lays a JSON text out by hand, one line per list entry: such files can be read, searched and
// compared line by line, and a step of tens of thousands of events stays compact. For rooms that
// write such files, not for users; used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide {

class JsonWriter {
 public:
  // Opens the file object with "format", "version" and "units", in this order.
  JsonWriter(std::string_view format, int version);

  // A member of the file object on a line of its own; `json` is JSON text.
  void member(std::string_view name, std::string_view json);
  // A member that is a list; entries follow, `per_line` on each line.
  void begin_list(std::string_view name, int per_line = 1);
  void entry(std::string_view json);
  void end_list();
  [[nodiscard]] std::string finish() &&;

 private:
  std::string text_;
  int per_line_ = 1;
  int64_t entries_ = 0;
};

}  // namespace lowtide
