#include "corpus.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "core/error.h"

namespace lowtide::demo {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw InvalidInput("--text: cannot read '" + path + "'; give a UTF-8 text file that exists");
  }
  return text.str();
}

// Strict decoding: overlong forms, surrogates and values above U+10FFFF are errors.
std::vector<char32_t> decode_utf8(const std::string& text, const std::string& path) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  const auto fail = [&](size_t at) {
    throw InvalidInput("--text: '" + path + "' is not UTF-8 at byte " + std::to_string(at) +
                       "; convert it, for example with iconv -t utf-8");
  };
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // by length of the sequence
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0 || i + length > text.size()) fail(i);
    char32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) fail(i);
      point = point << 6 | (next & 0x3Fu);
    }
    const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    if (point < kSmallest[length] || point > 0x10FFFF || surrogate) fail(i);
    points.push_back(point);
    i += length;
  }
  return points;
}

}  // namespace

Corpus::Corpus(const Options& options) : options_(options) {
  const std::vector<char32_t> points = decode_utf8(read_text(options.text), options.text);
  std::map<char32_t, int64_t> ids;
  for (const char32_t point : points) ids.emplace(point, 0);
  for (auto& [point, id] : ids) id = vocabulary_size_++;
  tokens_.reserve(points.size());
  for (const char32_t point : points) tokens_.push_back(ids.at(point));

  const auto total = static_cast<int64_t>(tokens_.size());
  const int64_t needed = 10 * (options.longest_sequence() + 1);
  if (total < needed) {
    throw InvalidInput("--text: '" + options.text + "' has " + std::to_string(total) +
                       " characters, " + std::to_string(needed) + " are needed for sequences of " +
                       std::to_string(options.longest_sequence()) +
                       "; give a longer text or a smaller --context");
  }
  training_tokens_ = total - std::max(total / 10, options.longest_sequence() + 1);
}

Batch Corpus::training_batch(int64_t step) const {
  int64_t length = options_.context;
  int64_t rows = options_.batch;
  if (options_.max_length > 0) {
    std::mt19937 random = step_generator(options_.seed, step, 1);
    length = draw(random, options_.min_length, options_.max_length);
    if (step == options_.steps) rows = std::max<int64_t>(1, rows * 3 / 8);
  }
  std::mt19937 random = step_generator(options_.seed, step, 0);
  std::vector<int64_t> starts(static_cast<size_t>(rows));
  for (int64_t& start : starts) start = draw(random, 0, training_tokens_ - length - 1);
  return cut(starts, length);
}

Batch Corpus::evaluation_batch() const {
  const int64_t length = options_.longest_sequence();
  const int64_t last = static_cast<int64_t>(tokens_.size()) - length - 1;
  std::vector<int64_t> starts(static_cast<size_t>(options_.batch));
  for (size_t row = 0; row < starts.size(); ++row) {
    starts[row] =
        training_tokens_ + (last - training_tokens_) * static_cast<int64_t>(row) / options_.batch;
  }
  return cut(starts, length);
}

Batch Corpus::cut(const std::vector<int64_t>& starts, int64_t length) const {
  const auto rows = static_cast<int64_t>(starts.size());
  const at::Tensor inputs = at::empty({rows, length}, at::kLong);
  const at::Tensor targets = at::empty({rows, length}, at::kLong);
  auto* input = inputs.mutable_data_ptr<int64_t>();
  auto* target = targets.mutable_data_ptr<int64_t>();
  for (const int64_t start : starts) {
    const auto first = tokens_.begin() + start;
    input = std::copy(first, first + length, input);
    target = std::copy(first + 1, first + length + 1, target);
  }
  return {rows, length, inputs, targets};
}

}  // namespace lowtide::demo
