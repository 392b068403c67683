// What an allocation sequence costs at least: its peaks when replayed through a fresh caching core
// that gives its cache back before it grows. The core is the real one over a counting backend, so
// a prediction made here and a run share their rounding, slabs and growth rule.
//
// Pure: no memory is touched, calls are independent and deterministic, thread-safe. About 0.1 us
// per event. Throws InvalidInput naming the event when the sequence is not one (a block allocated
// twice, a free of what is not live, zero bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lowtide::hooks {

struct ReplayEvent {
  int32_t block = 0;  // any number; unique among live blocks
  int64_t bytes = 0;  // > 0 allocates so many, < 0 frees
};

struct ReplayPeaks {
  int64_t requested_bytes = 0;
  int64_t rounded_bytes = 0;
  int64_t reserved_bytes = 0;
};

[[nodiscard]] ReplayPeaks replay_peaks(std::span<const ReplayEvent> events,
                                       size_t granularity = 4096);
[[nodiscard]] int64_t replay_reserved_peak(std::span<const ReplayEvent> events,
                                           size_t granularity = 4096);

}  // namespace lowtide::hooks
