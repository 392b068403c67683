#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base.h"

namespace cuda_double {
namespace {

bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && std::string(text) != "0";
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (!*end) return value;
  std::fprintf(stderr, "CUDA double: %s is \"%s\", not a whole number. Fix: write digits only.\n",
               name, text);
  std::_Exit(2);
}

Settings read() {
  Settings result{};
  result.devices = static_cast<int>(std::min<uint64_t>(number("LOWTIDE_DOUBLE_DEVICES", 1), 16));
  result.memory_bytes = number("LOWTIDE_DOUBLE_MEMORY", uint64_t{16} << 30);
  result.delay_ticks = number("LOWTIDE_DOUBLE_DELAY", 0);
  result.strict = is_set("LOWTIDE_DOUBLE_STRICT");
  result.report = is_set("LOWTIDE_DOUBLE_REPORT");
  result.major = 9;
  const char* capability = std::getenv("LOWTIDE_DOUBLE_CAPABILITY");
  if (capability) std::sscanf(capability, "%d.%d", &result.major, &result.minor);
  if (!is_set("LOWTIDE_DOUBLE_QUIET")) {
    std::fprintf(stderr,
                 "CUDA double: %d pretended device(s) of %.2f GiB, compute capability %d.%d; "
                 "kernels compute nothing, values are garbage\n",
                 result.devices, static_cast<double>(result.memory_bytes) / (1 << 30), result.major,
                 result.minor);
  }
  return result;
}

}  // namespace

const Settings& settings() {
  static const Settings result = read();
  return result;
}

std::mutex& state_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

}  // namespace cuda_double
