// The clock of time limits in tests.
#pragma once

#include <ctime>

namespace lowtide::testing {

// CPU time of this process since its start, in seconds.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace lowtide::testing
