// A text file as training data: one token per distinct character (Unicode code point); the model
// sees the first `length` of `length` + 1 characters, and learns the last `length`. Throws
// InvalidInput when the file cannot be read, is not UTF-8 or is too short.
#pragma once

#include <cstdint>
#include <vector>

#include "data_set.h"
#include "options.h"

namespace lowtide::demo {

class Corpus : public DataSet {
 public:
  explicit Corpus(const Options& options);

  [[nodiscard]] int64_t classes() const override { return vocabulary_size_; }
  [[nodiscard]] Batch training_batch(int64_t step) const override;
  [[nodiscard]] Batch evaluation_batch() const override;

 private:
  [[nodiscard]] Batch cut(const std::vector<int64_t>& starts, int64_t length) const;

  Options options_;
  std::vector<int64_t> tokens_;
  int64_t training_tokens_ = 0;  // the rest is held out
  int64_t vocabulary_size_ = 0;
};

}  // namespace lowtide::demo
