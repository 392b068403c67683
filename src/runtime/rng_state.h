// The state of a random generator at one instant: taken before an op that draws, put back to replay
// it. CPU (mt19937): 2.5 KB, copied without allocating a tensor. CUDA (Philox): seed and offset.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace lowtide::runtime {

class RngState {
 public:
  // Null when the generator is of a kind Lowtide cannot save exactly: such an op is never replayed.
  [[nodiscard]] static std::unique_ptr<RngState> capture(at::Generator generator);
  // A CUDA generator as it was at this offset, with the seed it has now.
  [[nodiscard]] static std::unique_ptr<RngState> at_offset(at::Generator generator,
                                                           uint64_t offset);
  // Where a CUDA generator is in its stream of numbers.
  [[nodiscard]] static uint64_t offset_of(at::Generator generator);
  // Puts the state back into the generator it was taken from.
  void restore() const;
  [[nodiscard]] const at::Generator& generator() const { return generator_; }

 private:
  at::Generator generator_;
  at::mt19937_data_pod engine_{};
  std::optional<float> next_float_;
  std::optional<double> next_double_;
  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
  bool cpu_ = true;
};

}  // namespace lowtide::runtime
