#include "core/json_reader.h"

#include <cmath>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/bytes.h"
#include "core/error.h"
#include "core/trace_file.h"
#include "core/version.h"

namespace lowtide {
namespace {

using ParsedJson = nlohmann::json;

const ParsedJson& json_of(const void* node) { return *static_cast<const ParsedJson*>(node); }

// Enough for a step of a million ops; a parsed value takes up to ~100 bytes, so a hostile file of
// the largest size cannot ask for more memory than machines have.
constexpr int64_t kMaxValues = 40'000'000;
constexpr int kMaxDepth = 32;

// Nesting and number of values, before anything is built from the text. Null = fine.
const char* oversized(std::string_view text) {
  int64_t values = 1;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return "is nested deeper than any such file";
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && ++values > kMaxValues) {
      return "has more than 40 million values";
    }
  }
  return nullptr;
}

std::string line_and_column(std::string_view text, size_t byte) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    ++column;
    if (text[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Where `target` is inside `tree`, as "ops[3].host_ns". Paths are found only when something is
// wrong: carrying them along would cost every correct file.
std::optional<std::string> path_of(const ParsedJson& tree, const ParsedJson* target) {
  const auto joined = [](const std::string& first, const std::string& rest) {
    return first + (rest.empty() || rest.front() == '[' ? "" : ".") + rest;
  };
  if (&tree == target) return "";
  if (tree.is_array()) {
    for (size_t i = 0; i < tree.size(); ++i) {
      if (auto rest = path_of(tree[i], target)) {
        return joined("[" + std::to_string(i) + "]", *rest);
      }
    }
  } else if (tree.is_object()) {
    for (const auto& item : tree.items()) {
      if (auto rest = path_of(item.value(), target)) {
        return joined(item.key(), *rest);
      }
    }
  }
  return std::nullopt;
}

// A value of the file as it may stand in a message: short, printable, one line.
std::string shown(const ParsedJson& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  std::string result = json.is_string() && json.get_ref<const std::string&>().size() > 60
                           ? '"' + json.get_ref<const std::string&>().substr(0, 60) + "...\""
                           : json.dump(-1, ' ', true, ParsedJson::error_handler_t::replace);
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

}  // namespace

struct JsonDocument::Tree {
  ParsedJson root;
};

JsonDocument::JsonDocument(std::string_view text, std::string_view what, std::string_view origin)
    : what_(what), origin_(origin) {
  if (text.size() > static_cast<size_t>(kMaxFileBytes)) {
    fail("is larger than " + format_bytes(kMaxFileBytes));
  }
  if (text.empty()) fail("is empty");
  if (const char* problem = oversized(text)) fail(problem);
  try {
    tree_ = std::make_unique<const Tree>(Tree{ParsedJson::parse(text)});
  } catch (const ParsedJson::parse_error& error) {
    fail((error.byte > text.size() ? "ends too early, at " : "is not JSON at ") +
         line_and_column(text, error.byte));
  } catch (const ParsedJson::exception&) {
    fail("holds a number that is too large");
  } catch (const std::bad_alloc&) {
    fail("needs more memory than there is");
  }
}

JsonDocument::~JsonDocument() = default;

void JsonDocument::fail(const std::string& problem) const {
  const char* fix = what_ == "plan"       ? "plan again from the trace"
                    : what_ == "trace"    ? "probe again"
                    : what_ == "instance" ? "correct the instance; its format is in FORMAT.md"
                                          : "name a trace, plan or remat-instance file";
  throw FileError(what_ + " '" + origin_ + "': " + problem + ". Fix: " + fix);
}

JsonNode JsonDocument::root() const { return {this, &tree_->root}; }

JsonNode JsonDocument::root(int version) const {
  const JsonNode root = this->root();
  const std::string format = "lowtide." + what_;
  const JsonNode found = root.field("format");
  if (found.text() != format) found.fail("must be \"" + format + '"');
  const JsonNode number = root.field("version");
  if (number.integer() != version) {
    number.fail("is not known to Lowtide " + std::string(kVersion) + ", which reads version " +
                std::to_string(version) + " (or use the Lowtide that wrote the file)");
  }
  return root;
}

void JsonNode::fail(const std::string& problem) const {
  const ParsedJson& json = json_of(json_);
  const std::string path = path_of(document_->tree_->root, &json).value_or("?");
  document_->fail((path.empty() ? "" : path + ": ") + shown(json) + " " + problem);
}

JsonNode JsonNode::field(const char* name) const {
  const ParsedJson& json = json_of(json_);
  if (!json.is_object()) fail("must be an object");
  const auto found = json.find(name);
  if (found == json.end()) {
    const std::string path = path_of(document_->tree_->root, &json).value_or("?");
    document_->fail(path + (path.empty() ? "" : ".") + name + ": is missing");
  }
  return {document_, &*found};
}

bool JsonNode::has(const char* name) const {
  const ParsedJson& json = json_of(json_);
  return json.is_object() && json.contains(name);
}

bool JsonNode::is_null() const { return json_of(json_).is_null(); }

size_t JsonNode::size() const {
  if (!json_of(json_).is_array()) fail("must be an array");
  return json_of(json_).size();
}

JsonNode JsonNode::at(size_t index) const {
  const ParsedJson& json = json_of(json_);
  if (index >= size()) fail("must have more than " + std::to_string(index) + " values");
  return {document_, &json[index]};
}

bool JsonNode::boolean() const {
  if (!json_of(json_).is_boolean()) fail("must be true or false");
  return json_of(json_).get<bool>();
}

std::string_view JsonNode::text() const {
  if (!json_of(json_).is_string()) fail("must be a text");
  return json_of(json_).get_ref<const std::string&>();
}

int64_t JsonNode::integer(int64_t least, int64_t most) const {
  const ParsedJson& json = json_of(json_);
  // Whole numbers above INT64_MAX are kept as unsigned by the parser.
  const bool fits = json.is_number_integer() &&
                    !(json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || json.get<int64_t>() < least || json.get<int64_t>() > most) {
    fail("must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return json.get<int64_t>();
}

int32_t JsonNode::integer32(int32_t least) const {
  return static_cast<int32_t>(integer(least, INT32_MAX));
}

int32_t JsonNode::id_or_null() const { return is_null() ? kNone : integer32(); }

double JsonNode::number() const {
  const ParsedJson& json = json_of(json_);
  const double value = json.is_number() ? json.get<double>() : -1.0;
  if (!std::isfinite(value) || value < 0) fail("must be a number of at least 0");
  return value;
}

uint64_t JsonNode::hash() const {
  const std::string_view digits = text();
  uint64_t value = 0;
  for (const char c : digits) {
    if (digits.size() != 16 || !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
      fail("must be a text of 16 hex digits");
    }
    value = value * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (digits.empty()) fail("must be a text of 16 hex digits");
  return value;
}

}  // namespace lowtide
