// A vector of rows in two flat arrays: one allocation for a whole graph. Const use is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide::planner {

template <class T>
class Rows {
 public:
  void add_row(std::span<const T> row) {
    items_.insert(items_.end(), row.begin(), row.end());
    ends_.push_back(static_cast<uint32_t>(items_.size()));
  }
  [[nodiscard]] std::span<const T> operator[](int32_t row) const {
    const auto index = static_cast<size_t>(row);
    const uint32_t begin = index == 0 ? 0 : ends_[index - 1];
    return {items_.data() + begin, ends_[index] - begin};
  }

 private:
  std::vector<T> items_;
  std::vector<uint32_t> ends_;
};

}  // namespace lowtide::planner
