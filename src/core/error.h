// Errors of the public C++ API.
//
// Five types, one base. Every text names the thing that is wrong and the fix, and ends with the
// file:line that raised it. They are thrown by C++ (and later Python) API calls only: nothing is
// ever thrown through an allocator hook, a deleter or a C callback, except the out-of-memory error
// that the framework's own allocator interface expects.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>

namespace lowtide {

// Base of all Lowtide errors. what() = "<message> [file.cc:line]".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message,
                 std::source_location where = std::source_location::current());
  // The text without the file:line suffix.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
};

// A value given by the user cannot be used (budget text, option, strategy name, ...).
class InvalidInput : public Error {
 public:
  using Error::Error;
};

// A trace or plan file is malformed, truncated, too large, or of an unknown format or version.
class FileError : public Error {
 public:
  using Error::Error;
};

// A plan or trace does not belong to this program, device or torch. The text names what differs.
class Mismatch : public Error {
 public:
  using Error::Error;
};

// The budget cannot be met. Carries the account, so that callers can act on it without parsing.
class OutOfBudget : public Error {
 public:
  OutOfBudget(const std::string& message, int64_t budget_bytes, int64_t smallest_reachable_bytes,
              std::source_location where = std::source_location::current());
  [[nodiscard]] int64_t budget_bytes() const noexcept { return budget_bytes_; }
  // Smallest budget known to work, bytes; -1 where it is not known yet (no trace).
  [[nodiscard]] int64_t smallest_reachable_bytes() const noexcept { return smallest_bytes_; }

 private:
  int64_t budget_bytes_;
  int64_t smallest_bytes_;
};

// A broken invariant inside Lowtide, or a value that could not be reproduced bit for bit.
class InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               std::source_location where = std::source_location::current());
}  // namespace detail

}  // namespace lowtide

// Invariant check that stays on in every build type (NDEBUG is forced where torch is included).
#define LOWTIDE_CHECK(condition, message)                     \
  do {                                                        \
    if (!(condition)) [[unlikely]] {                          \
      ::lowtide::detail::check_failed(#condition, (message)); \
    }                                                         \
  } while (false)
