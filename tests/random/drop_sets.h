// Executes every drop set of a small program and compares each with its simulation.
//
// A drop set says of every storage that may be dropped: kept, dropped and rebuilt once, or rebuilt
// for each use. All of them are run from plan files, each for a few steps: the bits must be the
// plain program's, the measured peak of requested bytes and the number of replayed ops exactly the
// simulator's. Not thread-safe (sessions are the process's).
#pragma once

#include <cstdint>
#include <string>

#include "random/random_program.h"

namespace lowtide::testing {

struct DropSetTally {
  int64_t programs = 0;
  int64_t sets = 0;          // executed
  int64_t replayed_ops = 0;  // in the compared steps
};

// What differs first; empty = nothing. A program with more than `most` droppable storages, or none,
// is passed over (nothing is added to the tally).
[[nodiscard]] std::string judge_drop_sets(const RandomProgram& program, int most,
                                          DropSetTally& tally);

}  // namespace lowtide::testing
