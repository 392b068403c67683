// Any text is a trace or a FileError, and an accepted trace survives a round trip. Anything else,
// an exception of another type above all, ends the process.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const lowtide::Trace trace = lowtide::trace_from_json(text);
    const std::string written = lowtide::trace_to_json(trace);
    if (lowtide::trace_to_json(lowtide::trace_from_json(written)) != written) std::abort();
  } catch (const lowtide::FileError&) {
    return 0;
  }
  return 1;  // accepted; the seeded driver counts these
}
