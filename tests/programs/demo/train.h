// The training loop of the demo programs: an ordinary LibTorch loop, with one extra line per step
// when it runs under Lowtide. The result is a pure function of the options: with or without
// Lowtide, whole or resumed, parameters after N steps are equal bit for bit.
#pragma once

#include "program.h"
#include "run_log.h"

namespace lowtide::demo {

// Prints the final screen on stdout. Throws what Session throws, InvalidInput, and
// c10::OutOfMemoryError; what was logged before is in `log` in any case.
void train(const Program& program, const Options& options, RunLog& log);

}  // namespace lowtide::demo
