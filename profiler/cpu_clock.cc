#include "profiler/cpu_clock.h"

#include <time.h>

#include <algorithm>
#include <cstddef>

namespace lowtide::profiler {
namespace {

// The value `quarters`/4 of the way through the sorted samples.
int64_t quartile(const std::vector<int64_t>& sorted, size_t quarters) {
  const size_t scaled = (sorted.size() - 1) * quarters;
  const size_t low = scaled / 4;
  const auto weight = static_cast<int64_t>(scaled % 4);
  if (weight == 0) return sorted[low];
  return sorted[low] + (sorted[low + 1] - sorted[low]) * weight / 4;
}

}  // namespace

ClockKind choose_clock(int intra_op_threads) noexcept {
  return intra_op_threads == 1 ? ClockKind::thread_cpu : ClockKind::wall;
}

int64_t now_ns(ClockKind kind) noexcept {
  timespec now{};
  clock_gettime(kind == ClockKind::thread_cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

const char* to_string(ClockKind kind) noexcept {
  return kind == ClockKind::thread_cpu ? "thread_cpu" : "wall";
}

SampleStats pool(std::vector<int64_t> samples_ns) noexcept {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  return {.median_ns = quartile(samples_ns, 2),
          .iqr_ns = quartile(samples_ns, 3) - quartile(samples_ns, 1),
          .min_ns = samples_ns.front(),
          .count = static_cast<int32_t>(samples_ns.size())};
}

}  // namespace lowtide::profiler
