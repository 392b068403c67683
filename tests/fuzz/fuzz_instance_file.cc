// Any text is an instance or a FileError; an accepted one is a joint trace that survives a trace
// file's round trip.
#include <cstdlib>

#include "core/error.h"
#include "core/trace_file.h"
#include "fuzz/fuzz_target.h"
#include "planner/instance.h"

bool lowtide::fuzz::accepted(std::string_view text) {
  try {
    const Trace trace = planner::instance_from_json(text);
    const std::string written = trace_to_json(trace);
    if (trace_to_json(trace_from_json(written)) != written) std::abort();
  } catch (const FileError&) {
    return false;
  }
  return true;
}
