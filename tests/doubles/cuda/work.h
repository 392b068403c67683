// Work on streams: checked, ordered, logged and, where it is a copy or a memset, done.
//
// Everything here is Locked.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cuda_double.h"
#include "timeline.h"

namespace cuda_double {

struct Span {  // of device memory
  uintptr_t begin;
  uint64_t bytes;
};

struct Work {
  LowtideDoubleWork kind;
  const char* name;                // lives as long as the process
  uint64_t bytes = 0;              // of copies and memsets
  std::vector<Span> spans = {};    // what it accesses, as far as can be told
  std::function<void()> run = {};  // empty: computes nothing. Host functions: the caller runs them
};

// Puts the work on the stream, or into the graph that the stream captures.
cudaError_t put(cudaStream_t stream, Work work);
// Does it now, as part of the call with this correlation. Unmapped spans are misuse and refused.
cudaError_t perform(CUstream_st& stream, const Work& work, uint64_t correlation);
uint64_t new_correlation();

// The same text as a pointer that lives as long as the process.
const char* lasting(std::string_view text);

}  // namespace cuda_double
