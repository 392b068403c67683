#include "hooks/placement_orders.h"

#include <algorithm>
#include <cmath>

namespace lowtide::hooks {
namespace {

// Falling by value, equal ones as they stand.
template <class Before>
std::vector<int32_t> sorted(std::span<const int32_t> open, Before before) {
  std::vector<int32_t> order(open.begin(), open.end());
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

}  // namespace

PlacementOrders::PlacementOrders(std::span<const PlacedBuffer> buffers, int64_t period,
                                 const PlacementSections& sections, std::span<const int32_t> open)
    : buffers_(buffers),
      period_(period),
      sections_(sections),
      open_(open),
      pressure_(buffers.size()) {
  for (const int32_t buffer : open_) {
    PlacementSections::for_each_section(sections_.run(buffer), [&](int32_t section) {
      pressure_[buffer] =
          std::max(pressure_[buffer], static_cast<double>(sections_.live_bytes()[section]));
    });
  }
}

std::vector<int32_t> PlacementOrders::by_keys(std::string_view keys) const {
  return sorted(open_, [&](int32_t a, int32_t b) {
    for (const char letter : keys) {
      const double key_a = key(a, letter), key_b = key(b, letter);
      if (key_a != key_b) return key_a > key_b;
    }
    return false;
  });
}

std::vector<int32_t> PlacementOrders::blend(std::span<const double> conflicts) {
  // Ranges that packed the hard public instances; a pressure that outweighs all else is among them.
  const double length_weight = 2 * uniform();
  const double size_weight = uniform();
  const double pressure_weight = uniform() < 0.5 ? 0 : std::exp(5 * uniform() - 1.5);
  const double noise = 0.5 * uniform();
  std::vector<double> value(buffers_.size());
  for (const int32_t buffer : open_) {
    double pressure = pressure_[buffer];
    if (!conflicts.empty()) {
      pressure = 1;
      PlacementSections::for_each_section(sections_.run(buffer), [&](int32_t section) {
        pressure = std::max(pressure, 1 + conflicts[section]);
      });
    }
    value[buffer] = length_weight * std::log(length(buffer)) +
                    size_weight * std::log(static_cast<double>(buffers_[buffer].bytes)) +
                    pressure_weight * std::log(pressure) + noise * uniform();
  }
  return sorted(open_, [&](int32_t a, int32_t b) { return value[a] > value[b]; });
}

double PlacementOrders::key(int32_t buffer, char letter) const {
  const double size = static_cast<double>(buffers_[buffer].bytes);
  switch (letter) {
    case 'S':
      return size;
    case 'L':
      return length(buffer);
    case 'A':
      return length(buffer) * size;
    case 'P':
      return pressure_[buffer];
    default:
      return static_cast<double>(buffers_[buffer].lower);
  }
}

double PlacementOrders::length(int32_t buffer) const {
  const PlacedBuffer& it = buffers_[buffer];
  const double difference = static_cast<double>(it.upper) - static_cast<double>(it.lower);
  return difference > 0 ? difference : difference + static_cast<double>(period_);
}

// Spelt out, as the standard leaves the numbers of its distributions open.
double PlacementOrders::uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

}  // namespace lowtide::hooks
