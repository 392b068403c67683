// Any text is a plan or a FileError, and an accepted plan survives a round trip. Anything else,
// an exception of another type above all, ends the process.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const lowtide::Plan plan = lowtide::plan_from_json(text);
    const std::string written = lowtide::plan_to_json(plan);
    if (lowtide::plan_to_json(lowtide::plan_from_json(written)) != written) std::abort();
  } catch (const lowtide::FileError&) {
    return 0;
  }
  return 1;  // accepted; the seeded driver counts these
}
