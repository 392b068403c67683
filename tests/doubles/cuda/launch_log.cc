#include "launch_log.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace cuda_double {
namespace {

constexpr size_t kKept = size_t{1} << 20;

int64_t host_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

LaunchLog& LaunchLog::instance() {
  static LaunchLog& result = *new LaunchLog;
  return result;
}

void LaunchLog::append(const Work& work, const CUstream_st& stream, uint64_t correlation) {
  thread_local const int32_t thread = gettid();
  launches_.push_back({next_sequence_++, correlation, work.bytes, host_ns(), work.name, work.kind,
                       stream.device, stream.number, thread});
  if (launches_.size() > kKept) launches_.pop_front();
}

uint64_t LaunchLog::read(uint64_t first, LowtideDoubleLaunch* out, uint64_t capacity) const {
  const uint64_t oldest = next_sequence_ - launches_.size();
  first = std::max(first, oldest);
  if (first >= next_sequence_) return 0;
  const uint64_t count = std::min(capacity, next_sequence_ - first);
  std::copy_n(launches_.begin() + static_cast<ptrdiff_t>(first - oldest), count, out);
  return count;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" uint64_t lowtide_double_launches() {
  Lock lock;
  return LaunchLog::instance().size();
}

extern "C" uint64_t lowtide_double_read_launches(uint64_t first, LowtideDoubleLaunch* out,
                                                 uint64_t capacity) {
  Lock lock;
  return LaunchLog::instance().read(first, out, capacity);
}
