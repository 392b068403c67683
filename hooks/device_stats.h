// What a device core counts: torch's own figures of a caching allocator, so that they can be
// compared with the native allocator's one by one (names in device_stats_json.cc).
//
// Plain values, no thread safety. Bytes where the name says so or `requested`, `rounded`,
// `reserved`; else numbers of blocks or segments.
#pragma once

#include <array>
#include <cstdint>

namespace lowtide::hooks {

// A figure, the most it ever was, and the sums of what was added and taken away.
struct Flow {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;
  int64_t freed = 0;

  void add(int64_t amount) noexcept {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void take(int64_t amount) noexcept {
    current -= amount;
    freed += amount;
  }
  void change(int64_t amount) noexcept { amount < 0 ? take(-amount) : add(amount); }
};

struct PoolStats {
  Flow blocks;          // that somebody owns
  Flow segments;        // pieces held from the device
  Flow active;          // blocks that are owned or wait for events
  Flow inactive_split;  // free blocks that are part of a segment
  Flow requested;       // bytes asked for, of blocks that somebody owns
  Flow rounded;         // bytes of these blocks
  Flow reserved;        // bytes of segments
  Flow active_bytes;
  Flow inactive_split_bytes;

  [[nodiscard]] std::array<Flow*, 9> flows() noexcept {
    return {&blocks,  &segments, &active,       &inactive_split,      &requested,
            &rounded, &reserved, &active_bytes, &inactive_split_bytes};
  }
};

struct DeviceStats : PoolStats {  // of all pools
  PoolStats small_pool;           // requests of 1 MiB at most
  PoolStats large_pool;
  int64_t cached = 0;   // bytes of segments without a block in use: could be given back now
  int64_t waiting = 0;  // bytes of freed blocks that wait for events
  int64_t segment_acquires = 0;  // calls of the device
  int64_t segment_returns = 0;
  int64_t alloc_retries = 0;   // misses after which cached segments were given back
  int64_t stream_waits = 0;    // times a miss waited for the events of freed blocks
  int64_t limit_hits = 0;      // times the ladder was entered because of the limit
  int64_t pressure_bytes = 0;  // bytes that the pressure handler said it freed
  int64_t failures = 0;        // allocations that returned null
};

}  // namespace lowtide::hooks
