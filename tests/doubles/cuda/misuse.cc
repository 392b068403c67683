#include <array>
#include <cstdio>

#include "base.h"

namespace cuda_double {
namespace {

struct Entry {
  uint64_t count = 0;
  std::string first;
};

std::array<Entry, kMisuses>& entries() {
  static auto& result = *new std::array<Entry, kMisuses>;
  return result;
}

constexpr const char* kNames[kMisuses] = {
    "double free",    "free of a foreign pointer", "access of unmapped memory",
    "use after free", "freed while in use",
};

bool matches(int kind, const char* name) { return !name || std::string(name) == kNames[kind]; }

}  // namespace

void report_misuse(Misuse kind, const std::string& text) {
  Entry& entry = entries()[static_cast<int>(kind)];
  if (entry.count++ == 0) entry.first = text;
}

std::string misuse_table() {
  std::string result;
  for (int kind = 0; kind < kMisuses; ++kind) {
    const Entry& entry = entries()[kind];
    if (entry.count == 0) continue;
    result += std::string("  ") + kNames[kind] + ": " + std::to_string(entry.count) +
              " times, first: " + entry.first + "\n";
  }
  return result;
}

std::string hex(uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(address));
  return text;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" uint64_t lowtide_double_misuse(const char* kind) {
  Lock lock;
  uint64_t result = 0;
  for (int i = 0; i < kMisuses; ++i) {
    if (matches(i, kind)) result += entries()[i].count;
  }
  return result;
}

extern "C" const char* lowtide_double_first_misuse(const char* kind) {
  // The caller reads it without the lock: its own copy, until this thread asks again.
  thread_local std::string copy;
  Lock lock;
  copy.clear();
  for (int i = 0; i < kMisuses && copy.empty(); ++i) {
    if (matches(i, kind)) copy = entries()[i].first;
  }
  return copy.c_str();
}

extern "C" void lowtide_double_forget_misuse() {
  Lock lock;
  entries() = {};
}
