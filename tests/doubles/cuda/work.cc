#include "work.h"

#include <set>

#include "capture.h"
#include "launch_log.h"
#include "ranges.h"

namespace cuda_double {
namespace {

std::string described(const Work& work, const CUstream_st& stream, const Span& span) {
  return std::string(work.name) + " on stream " + std::to_string(stream.number) + " of " +
         std::to_string(span.bytes) + " bytes at " + hex(span.begin);
}

// False: a span is not there. Use of a returned block is reported and goes on, as on a device.
bool check(const Work& work, const CUstream_st& stream) {
  const Ranges& ranges = Ranges::instance();
  for (const Span& span : work.spans) {
    if (!ranges.covers(span.begin, span.bytes)) {
      const bool freed = ranges.was_freed(span.begin, true);
      report_misuse(freed ? Misuse::kUseAfterFree : Misuse::kUnmapped,
                    described(work, stream, span));
      return false;
    }
    if (ReturnedBlocks::instance().overlaps(span.begin, span.bytes)) {
      report_misuse(Misuse::kUseAfterFree,
                    described(work, stream, span) + ", a block that was returned");
    }
  }
  return true;
}

}  // namespace

cudaError_t perform(CUstream_st& stream, const Work& work, uint64_t correlation) {
  if (!check(work, stream)) return cudaErrorInvalidValue;
  const uint64_t ticket = Timeline::instance().issue(stream);
  for (const Span& span : work.spans) {
    Accesses::instance().add(span.begin, span.bytes, stream.number, ticket);
  }
  LaunchLog::instance().append(work, stream, correlation);
  if (work.run && work.kind != kLowtideDoubleHost) work.run();
  return cudaSuccess;
}

cudaError_t put(cudaStream_t handle, Work work) {
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return capture_work(*stream->capture, std::move(work));
  return perform(*stream, work, new_correlation());
}

uint64_t new_correlation() {
  static uint64_t newest = 0;
  return ++newest;
}

const char* lasting(std::string_view text) {
  static auto& texts = *new std::set<std::string, std::less<>>;
  const auto at = texts.find(text);
  return (at == texts.end() ? texts.emplace(text).first : at)->c_str();
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" int lowtide_double_touch(const void* address, uint64_t bytes, void* stream) {
  Lock lock;
  return put(static_cast<cudaStream_t>(stream),
             {.kind = kLowtideDoubleKernel,
              .name = "lowtide_double_touch",
              .spans = {{reinterpret_cast<uintptr_t>(address), bytes}}});
}

extern "C" void lowtide_double_given(const void* address, uint64_t bytes, void* handle) {
  Lock lock;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  ReturnedBlocks::instance().remove(begin, bytes);
  const cudaStream_t stream = Timeline::instance().find(static_cast<cudaStream_t>(handle));
  if (!stream) return;
  const int user = Accesses::instance().unordered(begin, bytes, stream);
  if (user < 0) return;
  report_misuse(Misuse::kFreedInUse, std::to_string(bytes) + " bytes at " + hex(begin) +
                                         " given to stream " + std::to_string(stream->number) +
                                         " while work of stream " + std::to_string(user) +
                                         " on them is not ordered before it by an event");
  Accesses::instance().forget(begin, bytes);  // said once
}

extern "C" void lowtide_double_returned(const void* address, uint64_t bytes) {
  Lock lock;
  ReturnedBlocks::instance().add(reinterpret_cast<uintptr_t>(address), bytes);
}
