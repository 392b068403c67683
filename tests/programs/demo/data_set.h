// What a demo program learns from. Sampling is a pure function of (seed, step): there is no state
// to save in a checkpoint, and a resumed run sees the same batches as an uninterrupted one. Const
// access from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>

namespace lowtide::demo {

struct Batch {
  int64_t rows = 0;
  int64_t length = 1;  // of a row, where rows are sequences
  at::Tensor inputs;   // on the CPU, rows first
  at::Tensor targets;  // class numbers, int64
};

class DataSet {
 public:
  virtual ~DataSet() = default;
  [[nodiscard]] virtual int64_t classes() const = 0;
  // Step 1, 2, ...: the batch that this step learns.
  [[nodiscard]] virtual Batch training_batch(int64_t step) const = 0;
  // The same for every call: from what training never sees.
  [[nodiscard]] virtual Batch evaluation_batch() const = 0;
};

// One generator per step and purpose, so that no draw depends on how many came before.
[[nodiscard]] inline std::mt19937 step_generator(uint64_t seed, int64_t step, uint32_t purpose) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                         static_cast<uint32_t>(step), purpose};
  return std::mt19937(sequence);
}

// From [low, high]. The standard library's distributions differ between implementations; the
// modulo's bias is far below anything a demo could show.
[[nodiscard]] inline int64_t draw(std::mt19937& random, int64_t low, int64_t high) {
  const uint64_t wide = uint64_t{random()} << 32 | random();
  return low + static_cast<int64_t>(wide % static_cast<uint64_t>(high - low + 1));
}

}  // namespace lowtide::demo
