// `remat-instance` texts for tests: tiny random joint graphs, and the folder of the shared ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lowtide::testing {

// A legal instance: shared reads, several outputs, forward ops that only the backward needs,
// unsaved values that the backward reads, forward outputs. Deterministic in the seed.
[[nodiscard]] std::string random_instance(uint64_t seed, int forward_ops = 8);

// The instances beside the repository (gpt12.json, ..., optima.csv); an empty path where they are
// not there, which is said once on stdout.
[[nodiscard]] std::filesystem::path shared_instances();

struct Optimum {  // a row of optima.csv
  std::string instance;
  int64_t plain_ns = 0;
  int64_t plain_peak_bytes = 0;
  int64_t budget_bytes = 0;
  int64_t extra_ns = 0;
  int64_t proven_lower_bound_ns = 0;
};
[[nodiscard]] std::vector<Optimum> shared_optima();

}  // namespace lowtide::testing
