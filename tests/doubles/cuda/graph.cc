// Graphs: what a capture left, made executable and launched. Their kernels compute nothing; their
// copies and memsets are done at each launch, and their spans checked then.
#include "capture.h"

using namespace cuda_double;

namespace {

cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  Lock lock;
  *executable = new CUgraphExec_st{graph->works};
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  CUDA_DOUBLE_CALL();
  *graph = new CUgraph_st;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  CUDA_DOUBLE_CALL();
  delete graph;
  return cudaSuccess;
}

// Nodes have no handles of their own: only their number can be asked for.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  CUDA_DOUBLE_CALL();
  if (nodes) return missing_runtime("cudaGraphGetNodes with an array of nodes");
  Lock lock;
  *count = graph->works.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  CUDA_DOUBLE_CALL();
  return instantiate(executable, graph);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  CUDA_DOUBLE_CALL();
  return instantiate(executable, graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  CUDA_DOUBLE_CALL();
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  CUDA_DOUBLE_CALL();
  std::vector<std::function<void()>> host_functions;
  {
    Lock lock;
    const cudaStream_t stream = Timeline::instance().find(handle);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    const uint64_t correlation = new_correlation();
    for (const Work& work : executable->works) {
      const cudaError_t error = stream->capture ? capture_work(*stream->capture, work)
                                                : perform(*stream, work, correlation);
      if (error != cudaSuccess) return fail(error);
      if (!stream->capture && work.kind == kLowtideDoubleHost) host_functions.push_back(work.run);
    }
  }
  for (const auto& function : host_functions) function();
  return cudaSuccess;
}

}  // extern "C"
