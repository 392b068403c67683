#include "core/json_writer.h"

#include <utility>

namespace lowtide {

JsonWriter::JsonWriter(std::string_view format, int version) {
  text_ = "{\n\"format\": \"" + std::string(format) + "\"";
  member("version", std::to_string(version));
  member("units", R"({"bytes": "bytes", "time": "ns"})");
}

void JsonWriter::member(std::string_view name, std::string_view json) {
  text_.append(",\n\"").append(name).append("\": ").append(json);
}

void JsonWriter::begin_list(std::string_view name, int per_line) {
  member(name, "[");
  per_line_ = per_line;
  entries_ = 0;
}

void JsonWriter::entry(std::string_view json) {
  if (entries_ > 0) text_ += ',';
  text_ += entries_ % per_line_ == 0 ? "\n  " : " ";
  text_ += json;
  ++entries_;
}

void JsonWriter::end_list() { text_ += entries_ > 0 ? "\n]" : "]"; }

std::string JsonWriter::finish() && {
  text_ += "\n}\n";
  return std::move(text_);
}

}  // namespace lowtide
