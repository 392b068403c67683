// Options of a program run under `lowtide run`, from the environment that the command set.
#pragma once

#include <cstdint>

#include "runtime/session.h"

namespace lowtide::runtime {

struct RunOptions {
  SessionOptions session;
  // The budget cannot be met: end the process with exit code 3, or go on as low as is reachable.
  bool stop_when_infeasible = true;
};

// Throws InvalidInput for a value that means nothing.
[[nodiscard]] RunOptions run_options_from_environment();

}  // namespace lowtide::runtime
