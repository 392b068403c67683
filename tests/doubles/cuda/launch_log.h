// The log of all work that was put on streams, with a sequence number and the launching thread.
// Locked. Keeps the newest 1 Mi launches.
#pragma once

#include <deque>

#include "work.h"

namespace cuda_double {

class LaunchLog {
 public:
  static LaunchLog& instance();

  void append(const Work& work, const CUstream_st& stream, uint64_t correlation);
  uint64_t size() const { return next_sequence_; }
  uint64_t read(uint64_t first, LowtideDoubleLaunch* out, uint64_t capacity) const;

 private:
  uint64_t next_sequence_ = 0;
  std::deque<LowtideDoubleLaunch> launches_;
};

}  // namespace cuda_double
