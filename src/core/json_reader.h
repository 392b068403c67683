// Reads a JSON text against a fixed schema: every access checks presence, type and range, and says
// by name what is wrong ("plan 'a.json': predicted.step_ns: must be ..."). For rooms
// that read JSON files, not for users.
//
// `JsonDocument` owns the parsed text; a `JsonNode` is two pointers into it, valid while the
// document lives. Thread-safe for reading. Throws FileError and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lowtide {

class JsonDocument;

class JsonNode {
 public:
  JsonNode(const JsonDocument* document, const void* json) : document_(document), json_(json) {}

  // Member of an object. A missing one is an error; unknown others are ignored.
  [[nodiscard]] JsonNode field(const char* name) const;
  // Whether an object has the member: for fields that came later than their format.
  [[nodiscard]] bool has(const char* name) const;
  [[nodiscard]] bool is_null() const;

  [[nodiscard]] size_t size() const;  // of an array
  [[nodiscard]] JsonNode at(size_t index) const;

  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string_view text() const;  // valid while the document lives
  [[nodiscard]] int64_t integer(int64_t least = 0, int64_t most = INT64_MAX) const;
  [[nodiscard]] int32_t integer32(int32_t least = 0) const;
  [[nodiscard]] int32_t id_or_null() const;  // null = kNone
  [[nodiscard]] double number() const;       // finite, >= 0
  [[nodiscard]] uint64_t hash() const;       // text of 16 hex digits

  // An enum by its name; `count` values from 0, named by to_string.
  template <typename Enum>
  [[nodiscard]] Enum one_of(int count) const {
    const std::string_view name = text();
    for (int i = 0; i < count; ++i) {
      if (name == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    std::string known;
    for (int i = 0; i < count; ++i) {
      known += (i == 0 ? "" : ", ") + std::string(to_string(static_cast<Enum>(i)));
    }
    fail("must be one of " + known);
  }

  // "<what> '<origin>': <path of this node>: <problem>. Fix: ..."
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  const JsonDocument* document_;
  const void* json_;  // opaque, so that no header needs the JSON library
};

class JsonDocument {
 public:
  // `what` is "trace", "plan", "instance" or "file" (not known yet), `origin` the file's path. Both
  // are copied.
  JsonDocument(std::string_view text, std::string_view what, std::string_view origin);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  [[nodiscard]] const std::string& origin() const { return origin_; }
  // Whatever the text holds.
  [[nodiscard]] JsonNode root() const;
  // Checks "format" and "version" first.
  [[nodiscard]] JsonNode root(int version) const;
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  friend class JsonNode;
  struct Tree;
  std::string what_, origin_;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace lowtide
