#include "planner/time_axis.h"

#include <algorithm>

#include "core/index.h"

namespace lowtide::planner {

TimeAxis::TimeAxis(int32_t instants) {
  const int32_t buckets = std::max(1, (instants + kBucket - 1) / kBucket);
  while (leaves_ < buckets) leaves_ *= 2;
  nodes_.resize(at(2 * leaves_));
  values_.resize(at(leaves_ * kBucket));
  weight_.assign(nodes_.size(), kBucket);
  for (size_t node = at(leaves_) - 1; node > 0; --node) {
    weight_[node] = weight_[2 * node] + weight_[2 * node + 1];
  }
}

void TimeAxis::apply(size_t node, int64_t bytes) {
  Node& n = nodes_[node];
  n.added += bytes;
  n.max += bytes;
  n.min += bytes;
  n.sum += bytes * weight_[node];
}

void TimeAxis::refresh_above(size_t node) {
  for (node /= 2; node > 0; node /= 2) {
    Node& n = nodes_[node];
    const Node& left = nodes_[2 * node];
    const Node& right = nodes_[2 * node + 1];
    n.max = std::max(left.max, right.max) + n.added;
    n.min = std::min(left.min, right.min) + n.added;
    n.sum = left.sum + right.sum + n.added * weight_[node];
  }
}

void TimeAxis::add_inside(int32_t bucket, int32_t begin, int32_t end, int64_t bytes) {
  for (int32_t i = begin; i < end; ++i) values_[at(i)] += bytes;
  Node& n = nodes_[at(leaves_ + bucket)];
  const int64_t* first = values_.data() + at(bucket * kBucket);
  int64_t most = first[0];
  int64_t least = first[0];
  int64_t sum = 0;
  for (int32_t i = 0; i < kBucket; ++i) {
    most = std::max(most, first[i]);
    least = std::min(least, first[i]);
    sum += first[i];
  }
  n.max = most + n.added;
  n.min = least + n.added;
  n.sum = sum + n.added * kBucket;
}

void TimeAxis::add(int32_t begin, int32_t end, int64_t bytes) {
  if (begin >= end || bytes == 0) return;
  const int32_t first = begin / kBucket;
  const int32_t last = (end - 1) / kBucket;
  if (first == last) {
    add_inside(first, begin, end, bytes);
    refresh_above(at(leaves_ + first));
    return;
  }
  add_inside(first, begin, (first + 1) * kBucket, bytes);
  add_inside(last, last * kBucket, end, bytes);
  size_t left = at(leaves_ + first + 1);
  size_t right = at(leaves_ + last);
  for (; left < right; left /= 2, right /= 2) {
    if (left & 1) apply(left++, bytes);
    if (right & 1) apply(--right, bytes);
  }
  refresh_above(at(leaves_ + first));
  refresh_above(at(leaves_ + last));
}

int64_t TimeAxis::max() const { return std::max<int64_t>(0, nodes_[1].max); }

int64_t TimeAxis::excess(int64_t level) const { return excess_below(1, level); }

// `level` is relative to what the nodes above have added.
int64_t TimeAxis::excess_below(size_t node, int64_t level) const {
  const Node& n = nodes_[node];
  if (n.max <= level) return 0;
  if (n.min >= level) return n.sum - level * weight_[node];
  level -= n.added;
  if (node < at(leaves_)) return excess_below(2 * node, level) + excess_below(2 * node + 1, level);
  const int64_t* first = values_.data() + (node - at(leaves_)) * kBucket;
  int64_t sum = 0;
  for (int32_t i = 0; i < kBucket; ++i) sum += std::max<int64_t>(0, first[i] - level);
  return sum;
}

int32_t TimeAxis::first_above(int64_t level) const {
  size_t node = 1;
  if (nodes_[node].max <= level) return -1;
  while (node < at(leaves_)) {
    level -= nodes_[node].added;
    node = nodes_[2 * node].max > level ? 2 * node : 2 * node + 1;
  }
  level -= nodes_[node].added;
  auto i = static_cast<int32_t>((node - at(leaves_)) * kBucket);
  while (values_[at(i)] <= level) ++i;
  return i;
}

}  // namespace lowtide::planner
