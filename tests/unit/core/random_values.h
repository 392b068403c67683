// Random but valid traces and plans from a seed: the same seed gives the same value everywhere.
#pragma once

#include <cstdint>
#include <random>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::test {

// Uniform in [least, most]; spelled out because std distributions differ between libraries.
int64_t pick(std::mt19937_64& random, int64_t least, int64_t most);

// Passes validate(): `ops` forward ops with saves, then one backward op per save.
Trace random_trace(uint64_t seed, int forward_ops = 12);
Plan random_plan(uint64_t seed);

}  // namespace lowtide::test
