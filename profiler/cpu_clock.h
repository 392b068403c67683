// The clock of the CPU: which one tells what an op costs, and what a set of samples says.
//
// With one intra-op thread an op's cost is the CPU time of the thread that runs it: other work on
// the machine does not count. With more threads that clock sees one worker only, so wall time is
// taken and the thread count recorded beside it; the setting itself is never changed.
// Nanoseconds. Thread-safe (no state). Nothing is thrown.
#pragma once

#include <cstdint>
#include <vector>

namespace lowtide::profiler {

enum class ClockKind : uint8_t { thread_cpu, wall };

[[nodiscard]] ClockKind choose_clock(int intra_op_threads) noexcept;
// Never falls within one thread. Its zero is arbitrary: only differences mean something.
[[nodiscard]] int64_t now_ns(ClockKind kind) noexcept;
// "thread_cpu", "wall": the name in trace files.
[[nodiscard]] const char* to_string(ClockKind kind) noexcept;

struct SampleStats {
  int64_t median_ns = 0;
  int64_t iqr_ns = 0;  // third quartile - first quartile
  int64_t min_ns = 0;
  int32_t count = 0;
};

// Median and quartiles are interpolated between the two nearest samples and rounded down. All zero
// without samples.
[[nodiscard]] SampleStats pool(std::vector<int64_t> samples_ns) noexcept;

}  // namespace lowtide::profiler
