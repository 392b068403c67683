// cudaStream*, cudaEvent* and cudaDeviceSynchronize.
#include "capture.h"
#include "timeline.h"

using namespace cuda_double;

namespace {

constexpr int kGreatestPriority = -5;

cudaError_t create(cudaStream_t* stream, unsigned flags, int priority) {
  Lock lock;
  *stream = Timeline::instance().create_stream(current_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t create(cudaEvent_t* event, unsigned flags) {
  Lock lock;
  *event = Timeline::instance().create_event(current_device(), flags);
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t event, cudaStream_t handle) {
  Timeline& timeline = Timeline::instance();
  const cudaStream_t stream = timeline.find(handle);
  if (!stream || !timeline.lives(event)) return cudaErrorInvalidResourceHandle;
  timeline.record(*event, *stream);
  event->capture = stream->capture;
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  Timeline& timeline = Timeline::instance();
  const cudaStream_t stream = timeline.find(handle);
  if (!stream || !timeline.lives(event)) return cudaErrorInvalidResourceHandle;
  if (event->capture) {
    if (event->capture->ended) return cudaErrorCapturedEvent;
    if (stream->capture && stream->capture != event->capture) return cudaErrorStreamCaptureMerge;
    stream->capture = event->capture;
    return cudaSuccess;
  }
  if (stream->capture && event->recorded && !(flags & cudaEventWaitExternal)) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  timeline.wait(*stream, *event);
  return cudaSuccess;
}

template <typename Handle>
cudaError_t wait_on_host(Handle handle, cudaError_t captured) {
  if (!handle) return cudaErrorInvalidResourceHandle;
  if (const auto error = refuse_captured(handle->capture, captured)) return error;
  if (const auto error = refuse_while_capturing()) return error;
  Timeline::instance().synchronize(*handle);
  return cudaSuccess;
}

// As on a device, "not ready" is the thread's last error until it is read.
template <typename Handle>
cudaError_t query(Handle handle, cudaError_t captured) {
  if (!handle) return fail(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(handle->capture, captured)) return fail(error);
  if (const auto error = refuse_while_capturing()) return fail(error);
  return Timeline::instance().query(*handle) ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaEvent_t living(cudaEvent_t event) {
  return Timeline::instance().lives(event) ? event : nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  CUDA_DOUBLE_CALL();
  return create(stream, flags, priority);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  CUDA_DOUBLE_CALL();
  return create(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  CUDA_DOUBLE_CALL();
  return create(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const bool known = Timeline::instance().destroy_stream(stream);
  return known ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_DOUBLE_CALL();
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(wait_on_host(Timeline::instance().find(stream), cudaErrorStreamCaptureUnsupported));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return query(Timeline::instance().find(stream), cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(wait(stream, event, flags));
}

cudaError_t cudaDeviceSynchronize() {
  CUDA_DOUBLE_CALL();
  Lock lock;
  if (const auto error = refuse_while_capturing()) return fail(error);
  Timeline::instance().synchronize_device(current_device());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  CUDA_DOUBLE_CALL();
  return create(event, flags);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  CUDA_DOUBLE_CALL();
  return create(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const bool known = Timeline::instance().destroy_event(event);
  return known ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(record(event, stream));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(record(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return query(living(event), cudaErrorCapturedEvent);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(wait_on_host(living(event), cudaErrorCapturedEvent));
}

// A tick passes for a microsecond.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const Timeline& timeline = Timeline::instance();
  if (!timeline.lives(start) || !timeline.lives(end) || !start->recorded || !end->recorded) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *ms = static_cast<float>(static_cast<double>(end->due) - static_cast<double>(start->due)) / 1000;
  return cudaSuccess;
}

// Called at once, outside the lock: it may take locks of the program.
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  CUDA_DOUBLE_CALL();
  {
    Lock lock;
    const cudaStream_t stream = Timeline::instance().find(handle);
    const Work work{
        .kind = kLowtideDoubleHost, .name = "host function", .run = [=] { function(data); }};
    const cudaError_t error = put(handle, work);
    if (error != cudaSuccess || stream->capture) return fail(error);
  }
  function(data);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  CUDA_DOUBLE_CALL();
  {
    Lock lock;
    if (!Timeline::instance().find(stream)) return fail(cudaErrorInvalidResourceHandle);
  }
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

}  // extern "C"
