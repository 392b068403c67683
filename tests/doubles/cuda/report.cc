// The double's words to its tests: counts by name, and the report at exit.
#include <cstdio>

#include "cuda_double.h"
#include "launch_log.h"
#include "ranges.h"

using namespace cuda_double;

extern "C" uint64_t lowtide_double_calls(const char* function) { return CallCount::of(function); }

extern "C" uint64_t lowtide_double_missing() { return missing_calls(); }

namespace {

// Not under the lock: at exit another thread may hold it for ever.
__attribute__((destructor)) void report_at_exit() {
  const std::string calls = CallCount::table();
  if (calls.empty() || !settings().report) return;
  const std::string misuse = misuse_table();
  std::fprintf(stderr, "CUDA double, report at exit\nmisuse:%s\n%s", misuse.empty() ? " none" : "",
               misuse.c_str());
  for (int device = 0; device < settings().devices; ++device) {
    const DeviceBytes& bytes = DeviceBytes::of(device);
    std::fprintf(stderr, "device %d: %zu bytes now, %zu at most\n", device,
                 static_cast<size_t>(bytes.bytes()), static_cast<size_t>(bytes.largest()));
  }
  std::fprintf(stderr, "launches: %zu\ncalls:\n%s",
               static_cast<size_t>(LaunchLog::instance().size()), calls.c_str());
}

}  // namespace
