// Streams and events of the double: order, delay, captures and graphs.
#include <cstring>

#include "doubles/cuda/cuda_double_fixture.h"

namespace cuda_double_test {
namespace {

TEST_F(CudaDouble, WorkCompletesAfterItsDelayAndEventsInStreamOrder) {
  lowtide_double_set_delay(100);
  Block block;
  lowtide_double_touch(block.address, 1, one_);
  cudaEventRecord(event_, one_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  lowtide_double_advance(50);
  lowtide_double_touch(block.address, 1, one_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  lowtide_double_advance(50);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady) << "the second piece";
  EXPECT_EQ(cudaStreamQuery(two_), cudaSuccess) << "another stream";
  EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(one_), cudaSuccess);
}

TEST_F(CudaDouble, AStreamThatWaitsIsNotDoneBeforeWhatItWaitsFor) {
  lowtide_double_set_delay(kNever);
  Block block;
  lowtide_double_touch(block.address, 1, one_);
  cudaEventRecord(event_, one_);
  lowtide_double_set_delay(0);
  cudaStreamWaitEvent(two_, event_, 0);
  lowtide_double_touch(block.address, 1, two_);
  EXPECT_EQ(cudaStreamQuery(two_), cudaErrorNotReady);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(two_), cudaSuccess);
}

TEST_F(CudaDouble, DeadHandlesAreRefused) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  cudaStreamDestroy(stream);
  cudaEventDestroy(event);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, one_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaDouble, CapturedWorkIsDoneAtEachLaunch) {
  Block block;
  std::memset(block.address, 1, 16);
  const uint64_t before = lowtide_double_launches();
  ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal), cudaSuccess);
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  EXPECT_EQ(cudaStreamGetCaptureInfo(one_, &status, &id, nullptr, nullptr, nullptr, nullptr),
            cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(cudaMemsetAsync(block.address, 5, 16, one_), cudaSuccess);
  // A second stream joins through an event.
  cudaEventRecord(event_, one_);
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(two_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  lowtide_double_touch(block.address, 16, two_);
  cudaEventRecord(event_, two_);
  cudaStreamWaitEvent(one_, event_, 0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  EXPECT_EQ(*block.at(0), 1);
  EXPECT_EQ(lowtide_double_launches(), before);
  size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2u);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  ASSERT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
  EXPECT_EQ(*block.at(15), 5);
  LowtideDoubleLaunch launches[2];
  ASSERT_EQ(lowtide_double_read_launches(before, launches, 2), 2u);
  EXPECT_EQ(launches[0].correlation, launches[1].correlation);
  cudaGraphExecDestroy(executable);
  EXPECT_EQ(cudaStreamIsCapturing(two_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(CudaDouble, AGraphThatOutlivesItsMemoryIsCaught) {
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeRelaxed);
  lowtide_double_touch(block, kMiB, one_);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(one_, &graph);
  cudaGraphExec_t executable = nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
  cudaFree(block);
  EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaErrorInvalidValue);
  EXPECT_EQ(misuse("use after free"), 1u);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CudaDouble, AllocationDuringACaptureNeedsTheRelaxedMode) {
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, kMiB), cudaSuccess);
  EXPECT_EQ(cudaFree(block), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(cudaMalloc(&block, kMiB), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
}

}  // namespace
}  // namespace cuda_double_test
