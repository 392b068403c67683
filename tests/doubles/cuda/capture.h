// Stream capture: work on a capturing stream goes into a graph and is done when that is launched.
//
// Calls that synchronize or allocate are refused during a capture as the CUDA runtime does, by the
// capture's mode and the thread's. Dependencies between nodes are not kept: work of a graph runs in
// the order of its capture. Locked.
#pragma once

#include <thread>

#include "work.h"

struct CUgraph_st {
  std::vector<cuda_double::Work> works;
};

struct CUgraphExec_st {
  std::vector<cuda_double::Work> works;
};

namespace cuda_double {

struct Capture {
  uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;  // that began it
  cudaStream_t origin;
  cudaGraph_t graph;
  bool made_graph;  // false: captured into a graph of the program
  bool invalid = false;
  bool ended = false;
};

cudaError_t capture_work(Capture& capture, Work work);
// An error where a capture forbids this thread what may synchronize with the device; the capture is
// then invalid.
cudaError_t refuse_while_capturing();
// The same for a stream or event that is itself part of a capture.
cudaError_t refuse_captured(const std::shared_ptr<Capture>& capture, cudaError_t error);

}  // namespace cuda_double
