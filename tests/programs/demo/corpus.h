// A text file as training data: one token per distinct character (Unicode code point).
//
// Sampling is a pure function of (seed, step): there is no state to save in a checkpoint, and a
// resumed run sees the same batches as an uninterrupted one. Const access from any thread.
// Throws InvalidInput when the file cannot be read, is not UTF-8 or is too short.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace lowtide::demo {

// `rows` sequences of `length` + 1 tokens: the model sees the first `length`, and learns the last.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> inputs;   // rows x length
  std::vector<int64_t> targets;  // rows x length, inputs shifted by one
};

class Corpus {
 public:
  explicit Corpus(const Options& options);

  [[nodiscard]] int64_t vocabulary_size() const { return vocabulary_size_; }
  // Step 1, 2, ...: the batch that this step learns.
  [[nodiscard]] Batch training_batch(int64_t step) const;
  // The same for every call: from the held-out end of the text.
  [[nodiscard]] Batch evaluation_batch() const;

 private:
  [[nodiscard]] Batch cut(const std::vector<int64_t>& starts, int64_t length) const;

  Options options_;
  std::vector<int64_t> tokens_;
  int64_t training_tokens_ = 0;  // the rest is held out
  int64_t vocabulary_size_ = 0;
};

}  // namespace lowtide::demo
