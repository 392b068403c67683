#include "capture.h"

#include <algorithm>

namespace cuda_double {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
uint64_t newest_id = 0;

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& result = *new std::vector<std::shared_ptr<Capture>>;
  return result;
}

cudaError_t begin(cudaStream_t handle, cudaGraph_t graph, cudaStreamCaptureMode mode) {
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!handle || handle == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  const bool made_graph = !graph;
  stream->capture =
      std::make_shared<Capture>(Capture{++newest_id, mode, std::this_thread::get_id(), stream,
                                        made_graph ? new CUgraph_st : graph, made_graph});
  captures().push_back(stream->capture);
  return cudaSuccess;
}

cudaStreamCaptureStatus status_of(const Capture* capture) {
  if (!capture) return cudaStreamCaptureStatusNone;
  return capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture || capture->origin != stream) return cudaErrorIllegalState;
  std::erase(captures(), capture);
  Timeline::instance().end_capture(capture);
  capture->ended = true;
  *graph = capture->invalid ? nullptr : capture->graph;
  if (!capture->invalid) return cudaSuccess;
  if (capture->made_graph) delete capture->graph;
  return cudaErrorStreamCaptureInvalidated;
}

}  // namespace

cudaError_t capture_work(Capture& capture, Work work) {
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  capture.graph->works.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t refuse_while_capturing() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool refused = false;
  for (const auto& capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != cudaStreamCaptureModeRelaxed;
    const bool global =
        capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    capture->invalid = refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_captured(const std::shared_ptr<Capture>& capture, cudaError_t error) {
  if (!capture) return cudaSuccess;
  capture->invalid = true;
  return error;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(begin(stream, nullptr, mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                                          cudaStreamCaptureMode mode) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(begin(stream, graph, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return fail(end(stream, graph));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  CUDA_DOUBLE_CALL();
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  *status = status_of(stream->capture.get());
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  const cudaStream_t stream = Timeline::instance().find(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  const Capture* capture = stream->capture.get();
  *status = status_of(capture);
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph : nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}

}  // extern "C"
