// Planned addresses: where buffers of known size and lifetime lie in one contiguous range, so that
// no two that live at once share a byte and the range is short. The offline half of placement:
// pure, no memory is touched, calls are independent and thread-safe.
//
// Buffers that live all the time (the resident ones of a step) lie at the bottom, in falling order
// of alignment; all others above them. A steady step is a circle: with `period` > 0 a buffer may
// live over the step's end (lower > upper: from `lower` to the period and from 0 to `upper`), and
// the addresses fit step after step.
//
// Times are in any unit, lifetimes half-open; sizes and offsets are bytes. What takes buffers
// throws InvalidInput with the index and fault of the first bad one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lowtide::hooks {

struct PlacedBuffer {
  int64_t lower = 0;
  int64_t upper = 0;      // > lower, or in a circle any other time than lower
  int64_t bytes = 0;      // >= 0
  int64_t alignment = 1;  // > 0; the offset is a multiple of it
};

struct PlacementOptions {
  int64_t period = 0;  // of a circle; 0: time is a line
  // What is enough: the search ends at this height. 0: at the lowest there is.
  int64_t capacity_bytes = 0;
  // Nodes of the exact search after the greedy orders, 1 to 30 us each. The same number gives the
  // same placement wherever the time suffices.
  int64_t max_nodes = 20'000;
  double max_seconds = std::numeric_limits<double>::infinity();  // of wall time
};

struct Placement {
  std::vector<int64_t> offsets;  // one per buffer, in their order
  int64_t height_bytes = 0;
  // No placement is lower than this (residents at the bottom): the largest live sum, or more where
  // the search has proven it.
  int64_t lower_bound_bytes = 0;
  int64_t nodes = 0;  // that the search has visited
};

// Why the first buffer that cannot be placed cannot: a lifetime, size or alignment that is none, or
// sizes that sum to over 2^62 bytes.
struct BadBuffer {
  size_t index = 0;
  std::string fault;  // with the fix
};
[[nodiscard]] std::optional<BadBuffer> find_bad_buffer(std::span<const PlacedBuffer> buffers,
                                                       int64_t period = 0);

// The lowest placement found.
[[nodiscard]] Placement place(std::span<const PlacedBuffer> buffers,
                              const PlacementOptions& options = {});

}  // namespace lowtide::hooks
