// Any text is a plan or a FileError, and an accepted plan survives a round trip.
#include <cstdlib>

#include "core/error.h"
#include "core/trace_file.h"
#include "fuzz/fuzz_target.h"

bool lowtide::fuzz::accepted(std::string_view text) {
  try {
    const Plan plan = plan_from_json(text);
    const std::string written = plan_to_json(plan);
    if (plan_to_json(plan_from_json(written)) != written) std::abort();
  } catch (const FileError&) {
    return false;
  }
  return true;
}
