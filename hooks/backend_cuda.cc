#include "hooks/backend_cuda.h"

#include <vector>

#include "hooks/cuda_runtime.h"

namespace lowtide::hooks {
namespace {

// The thread's current device, for one call, is the backend's; and a capture elsewhere is not
// disturbed by calls that have nothing to do with it.
class CudaScope {
 public:
  CudaScope(const CudaRuntime& cuda, int device) noexcept : cuda_(cuda), device_(device) {
    if (cuda_.get_device(&previous_) != cudaSuccess) previous_ = device;
    if (previous_ != device_) cuda_.set_device(device_);
    cuda_.exchange_capture_mode(&mode_);
  }
  ~CudaScope() {
    cuda_.exchange_capture_mode(&mode_);
    if (previous_ != device_) cuda_.set_device(previous_);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaRuntime& cuda_;
  const int device_;
  int previous_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaBackend final : public DeviceBackend {
 public:
  CudaBackend(const CudaRuntime& cuda, int device) : cuda_(cuda), device_(device) {}
  // Events go with the process: at its end the runtime may be gone before this object is.

  void* acquire(size_t bytes) noexcept override {
    const CudaScope scope(cuda_, device_);
    void* base = nullptr;
    const cudaError_t answer = cuda_.malloc(&base, bytes);
    const bool usual = answer == cudaSuccess || answer == cudaErrorMemoryAllocation;
    trouble_ = usual ? nullptr : cuda_.get_error_string(answer);
    if (answer == cudaSuccess) return base;
    cuda_.get_last_error();  // otherwise somebody else's next check would find it
    return nullptr;
  }
  [[nodiscard]] const char* trouble() const noexcept override { return trouble_; }

  void give_back(void* base, size_t /*bytes*/) noexcept override {
    const CudaScope scope(cuda_, device_);
    cuda_.free(base);
  }

  Recorded record(DeviceStream stream, DeviceEvent& event) noexcept override {
    if (capturing(stream)) return Recorded::capturing;
    const CudaScope scope(cuda_, device_);
    cudaEvent_t fresh = nullptr;
    if (!spare_.empty()) {
      fresh = spare_.back();
      spare_.pop_back();
    } else if (cuda_.event_create_with_flags(&fresh, cudaEventDisableTiming) != cudaSuccess) {
      cuda_.get_last_error();
      return Recorded::failed;
    }
    if (cuda_.event_record(fresh, static_cast<cudaStream_t>(stream)) != cudaSuccess) {
      cuda_.get_last_error();  // a stream of another device, or one that is gone
      recycle(fresh);
      return Recorded::failed;
    }
    event = fresh;
    return Recorded::yes;
  }

  bool complete(DeviceEvent event) noexcept override {
    const CudaScope scope(cuda_, device_);
    const cudaError_t answer = cuda_.event_query(static_cast<cudaEvent_t>(event));
    if (answer == cudaErrorNotReady) cuda_.get_last_error();
    // Any other error is the device's end: no work is left that could use the memory.
    return answer != cudaErrorNotReady;
  }

  void wait(DeviceEvent event) noexcept override {
    const CudaScope scope(cuda_, device_);
    cuda_.event_synchronize(static_cast<cudaEvent_t>(event));
  }

  void recycle(DeviceEvent event) noexcept override {
    const auto cuda_event = static_cast<cudaEvent_t>(event);
    try {
      spare_.push_back(cuda_event);
    } catch (...) {
      cuda_.event_destroy(cuda_event);
    }
  }

  void wait_for_stream(DeviceStream stream) noexcept override {
    const CudaScope scope(cuda_, device_);
    // A stream that is gone has no work left.
    if (cuda_.stream_synchronize(static_cast<cudaStream_t>(stream)) != cudaSuccess) {
      cuda_.get_last_error();
      cuda_.device_synchronize();
    }
  }

  void wait_for_device() noexcept override {
    const CudaScope scope(cuda_, device_);
    cuda_.device_synchronize();
  }

  bool capturing(DeviceStream stream) noexcept override {
    const CudaScope scope(cuda_, device_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    const cudaError_t answer = cuda_.stream_is_capturing(cuda_stream, &status);
    if (answer == cudaSuccess) return status != cudaStreamCaptureStatusNone;
    cuda_.get_last_error();
    // The default stream, while another is captured that waits for it.
    return answer == cudaErrorStreamCaptureImplicit;
  }

  DeviceMemory memory() noexcept override {
    const CudaScope scope(cuda_, device_);
    DeviceMemory memory;
    if (cuda_.mem_get_info(&memory.free, &memory.total) != cudaSuccess) return {};
    return memory;
  }

  [[nodiscard]] const char* name() const noexcept override { return "cuda"; }

 private:
  const CudaRuntime& cuda_;
  const int device_;
  std::vector<cudaEvent_t> spare_;
  const char* trouble_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cuda_backend(int device, std::string* why_not) {
  const CudaRuntime* const cuda = CudaRuntime::find(why_not);
  if (cuda == nullptr) return nullptr;
  int devices = 0;
  if (cuda->get_device_count(&devices) != cudaSuccess) {
    cuda->get_last_error();
    devices = 0;
  }
  if (device < 0 || device >= devices) {
    if (why_not != nullptr) {
      *why_not = "no CUDA device " + std::to_string(device) + ": this machine has " +
                 std::to_string(devices) + ". Fix: give a device that it has";
    }
    return nullptr;
  }
  return std::make_unique<CudaBackend>(*cuda, device);
}

}  // namespace lowtide::hooks
