// Copies and memsets: these really move bytes.
#include <cstring>

#include "capture.h"
#include "ranges.h"

using namespace cuda_double;

namespace {

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool of_device(const void* pointer) {
  const Ranges& ranges = Ranges::instance();
  const Range* range = ranges.containing(address(pointer));
  return range ? range->on_device() : ranges.was_freed(address(pointer), true);
}

struct Sides {
  bool to_device, from_device;
};

Sides sides(const void* to, const void* from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return {false, false};
    case cudaMemcpyHostToDevice:
      return {true, false};
    case cudaMemcpyDeviceToHost:
      return {false, true};
    case cudaMemcpyDeviceToDevice:
      return {true, true};
    default:
      return {of_device(to), of_device(from)};
  }
}

// Rows of `width` bytes, `pitch` bytes apart.
struct Plane {
  char* begin;
  size_t pitch;
};

cudaError_t copy(const char* name, Plane to, Plane from, size_t width, size_t rows,
                 cudaMemcpyKind kind, cudaStream_t stream) {
  if (width == 0 || rows == 0) return cudaSuccess;
  const auto [to_device, from_device] = sides(to.begin, from.begin, kind);
  Work work{.kind = kLowtideDoubleMemcpy, .name = name, .bytes = width * rows};
  const auto add = [&](const Plane& plane) {
    work.spans.push_back({address(plane.begin), plane.pitch * (rows - 1) + width});
  };
  if (to_device) add(to);
  if (from_device) add(from);
  work.run = [=] {
    for (size_t row = 0; row < rows; ++row) {
      std::memmove(to.begin + row * to.pitch, from.begin + row * from.pitch, width);
    }
  };
  return put(stream, std::move(work));
}

cudaError_t copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  return copy(name, {static_cast<char*>(to), bytes},
              {static_cast<char*>(const_cast<void*>(from)), bytes}, bytes, 1, kind, stream);
}

cudaError_t set(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return put(stream, {.kind = kLowtideDoubleMemset,
                      .name = "memset",
                      .bytes = bytes,
                      .spans = {{address(to), bytes}},
                      .run = [=] { std::memset(to, value, bytes); }});
}

cudaError_t wait_after(cudaError_t error) {
  if (error == cudaSuccess) {
    Timeline::instance().synchronize(*Timeline::instance().find(nullptr));
  }
  return error;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(copy("memcpy", to, from, bytes, kind, stream));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (const auto error = refuse_while_capturing()) return fail(error);
  return fail(wait_after(copy("memcpy", to, from, bytes, kind, nullptr)));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(copy("memcpy peer", to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(copy("memcpy 2D", {static_cast<char*>(to), to_pitch},
                   {static_cast<char*>(const_cast<void*>(from)), from_pitch}, width, rows, kind,
                   stream));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(set(to, value, bytes, stream));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (const auto error = refuse_while_capturing()) return fail(error);
  return fail(wait_after(set(to, value, bytes, nullptr)));
}

}  // extern "C"
