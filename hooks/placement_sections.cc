#include "hooks/placement_sections.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"

namespace lowtide::hooks {
namespace {

constexpr int64_t kMaxTotalBytes = int64_t{1} << 62;

std::string fault_of(const PlacedBuffer& buffer, int64_t period) {
  const std::string life =
      "lives from " + std::to_string(buffer.lower) + " to " + std::to_string(buffer.upper);
  if (period == 0 && buffer.lower >= buffer.upper) return life + ". Fix: lower < upper";
  if (period > 0 && (buffer.lower == buffer.upper || buffer.lower < 0 || buffer.upper < 0 ||
                     buffer.lower >= period || buffer.upper > period)) {
    return life + " in a period of " + std::to_string(period) +
           ". Fix: 0 <= lower < period, 0 <= upper <= period, not the same";
  }
  if (buffer.bytes < 0) return "has " + std::to_string(buffer.bytes) + " bytes. Fix: 0 or more";
  if (buffer.alignment <= 0) {
    return "has an alignment of " + std::to_string(buffer.alignment) + ". Fix: 1 or more";
  }
  return "";
}

}  // namespace

std::optional<BadBuffer> find_bad_buffer(std::span<const PlacedBuffer> buffers, int64_t period) {
  int64_t total = 0;  // no top of a buffer is above it, and sums of two tops are in range
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::string fault = fault_of(buffers[i], period);
    if (fault.empty() && (__builtin_add_overflow(total, buffers[i].bytes, &total) ||
                          __builtin_add_overflow(total, buffers[i].alignment - 1, &total) ||
                          total > kMaxTotalBytes)) {
      fault = "brings the sum of sizes over 2^62 bytes. Fix: sizes that a machine can address";
    }
    if (!fault.empty()) return BadBuffer{i, std::move(fault)};
  }
  return std::nullopt;
}

PlacementSections::PlacementSections(std::span<const PlacedBuffer> buffers, int64_t period) {
  if (period < 0) {
    throw InvalidInput("period " + std::to_string(period) + " is negative. Fix: 0 for no circle");
  }
  if (const std::optional<BadBuffer> bad = find_bad_buffer(buffers, period)) {
    throw InvalidInput("buffer " + std::to_string(bad->index) + " " + bad->fault);
  }
  // Slices of time between two events; of them only those that a birth begins and a death ends.
  std::vector<int64_t> times;
  times.reserve(2 * buffers.size());
  for (const PlacedBuffer& buffer : buffers)
    times.insert(times.end(), {buffer.lower, buffer.upper});
  if (period > 0) times.insert(times.end(), {0, period});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto slice_of = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  const size_t slices = times.empty() ? 0 : times.size() - 1;
  // In a circle its end is its beginning.
  const auto boundary = [&](int64_t time) {
    return period > 0 && time == period ? size_t{0} : slice_of(time);
  };
  std::vector<bool> birth(slices + 1, false), death(slices + 1, false);
  // Lives go on over a circle's end, which must not part a birth from the next death unseen.
  if (period > 0) birth[0] = death[0] = true;
  for (const PlacedBuffer& buffer : buffers) {
    birth[boundary(buffer.lower)] = true;
    death[boundary(buffer.upper)] = true;
  }
  std::vector<int32_t> kept_before(slices + 1, 0);
  for (size_t slice = 0; slice < slices; ++slice) {
    const bool last_of_circle = period > 0 && slice + 1 == slices;
    const bool keep = birth[slice] && death[last_of_circle ? 0 : slice + 1];
    kept_before[slice + 1] = kept_before[slice] + (keep ? 1 : 0);
  }
  const int32_t count = kept_before[slices];

  live_bytes_.resize(static_cast<size_t>(count));
  runs_.reserve(buffers.size());
  for (const PlacedBuffer& buffer : buffers) {
    Run run{kept_before[slice_of(buffer.lower)], kept_before[slice_of(buffer.upper)], 0};
    if (buffer.lower > buffer.upper) run = {run.first, count, run.last};
    for_each_section(
        run, [&](int32_t section) { live_bytes_[static_cast<size_t>(section)] += buffer.bytes; });
    runs_.push_back(run);
    always_live_.push_back(buffer.lower == times.front() && buffer.upper == times.back());
  }
}

int64_t PlacementSections::max_live_bytes() const {
  return live_bytes_.empty() ? 0 : *std::max_element(live_bytes_.begin(), live_bytes_.end());
}

int64_t PlacementSections::incidences() const {
  int64_t sum = 0;
  for (const Run& run : runs_) sum += run.sections();
  return sum;
}

}  // namespace lowtide::hooks
