#include <array>

#include "base.h"

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct Name {
  int code;  // the runtime's and the driver's codes are the same numbers
  const char* name;
  const char* text;
};

constexpr std::array kErrors = {
    Name{0, "cudaSuccess", "no error"},
    Name{1, "cudaErrorInvalidValue", "invalid argument"},
    Name{2, "cudaErrorMemoryAllocation", "out of memory"},
    Name{100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    Name{101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    Name{400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    Name{500, "cudaErrorSymbolNotFound", "named symbol not found"},
    Name{600, "cudaErrorNotReady", "device not ready"},
    Name{700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    Name{704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    Name{801, "cudaErrorNotSupported", "operation not supported"},
    Name{900, "cudaErrorStreamCaptureUnsupported",
         "operation not permitted when stream is capturing"},
    Name{901, "cudaErrorStreamCaptureInvalidated",
         "operation failed due to a previous error during capture"},
    Name{904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    Name{905, "cudaErrorStreamCaptureIsolation",
         "dependency created on uncaptured work in another stream"},
    Name{907, "cudaErrorCapturedEvent",
         "operation not permitted on an event last recorded in a capturing stream"},
};

const Name& find(int code) {
  static constexpr Name kUnknown{-1, "cudaErrorUnknownToTheDouble", "unknown to the CUDA double"};
  for (const Name& name : kErrors) {
    if (name.code == code) return name;
  }
  return kUnknown;
}

}  // namespace

cudaError_t cuda_double::fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

extern "C" {

cudaError_t cudaGetLastError() {
  CUDA_DOUBLE_CALL();
  const cudaError_t result = last_error;
  last_error = cudaSuccess;
  return result;
}

cudaError_t cudaPeekAtLastError() {
  CUDA_DOUBLE_CALL();
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) { return find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return find(error).text; }

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = find(error).text;
  return CUDA_SUCCESS;
}

}  // extern "C"
