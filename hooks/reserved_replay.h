// What an allocation sequence costs: its peaks when replayed through a fresh caching core. The core
// is the real one over a counting backend, so a prediction made here and a run share their
// rounding, slabs and growth rule.
//
// Pure: no memory is touched, calls are independent and deterministic, thread-safe. About 0.1 us
// per event. Throws InvalidInput naming the event when the sequence is not one (a block allocated
// twice, a free of what is not live, zero bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// The least: the cache is given back before reserved grows.
[[nodiscard]] ReplayPeaks replay_peaks(std::span<const ReplayEvent> events,
                                       size_t granularity = 4096);
[[nodiscard]] int64_t replay_reserved_peak(std::span<const ReplayEvent> events,
                                           size_t granularity = 4096);

// Step after step of a run with this reserved target: the peak, and the exchanges of one step once
// they are all alike.
struct ReplayHold {
  int64_t reserved_bytes = 0;
  int64_t exchanges = 0;
};

// Ways to hold a step that is run again and again, by rising peak: from the least possible to
// where nothing is exchanged. Never empty. What the step leaves alive is taken for what the next
// one finds alive at its beginning (the leading allocations of the sequence), by size.
[[nodiscard]] std::vector<ReplayHold> replay_holds(std::span<const ReplayEvent> events,
                                                   size_t granularity = 4096);

}  // namespace lowtide::hooks
