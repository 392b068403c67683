// cuBLAS and cuBLASLt as far as programs hold handles; every computing call is a logged launch.
// cublas_api.h and cublasLt.h stay out, as not every toolkit has them: enumerations are int here.
#include <map>
#include <memory>

#include "work.h"

using namespace cuda_double;

namespace {

constexpr int kBlasSuccess = 0;
constexpr int kBlasNotInitialized = 1;
constexpr int kBlasInvalidValue = 7;
constexpr int kBlasExecutionFailed = 13;
constexpr int kBlasNotSupported = 15;

struct BlasHandle {
  cudaStream_t stream = nullptr;
  int math_mode = 0;
  int pointer_mode = 0;
};

std::map<void*, std::unique_ptr<BlasHandle>>& handles() {
  static auto& result = *new std::map<void*, std::unique_ptr<BlasHandle>>;
  return result;
}

BlasHandle* find_handle(void* handle) {
  const auto at = handles().find(handle);
  return at == handles().end() ? nullptr : at->second.get();
}

// What a call does with its handle, under the lock; an error where there is no such handle.
template <typename Use>
int with_handle(void* handle, Use use) {
  Lock lock;
  BlasHandle* known = find_handle(handle);
  if (!known) return kBlasNotInitialized;
  use(*known);
  return kBlasSuccess;
}

int status(cudaError_t error) { return error == cudaSuccess ? kBlasSuccess : kBlasExecutionFailed; }

// What cublasLt calls an algorithm and the heuristic's result, in its layout.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// Descriptors are created by the double and only handed back to it: their attributes tell nothing,
// as nothing is computed.
int create_descriptor(void** descriptor) {
  *descriptor = new char;
  return kBlasSuccess;
}
int destroy_descriptor(void* descriptor) {
  delete static_cast<char*>(descriptor);
  return kBlasSuccess;
}

}  // namespace

int cuda_double::blas_launch(void* handle, const char* function) {
  Lock lock;
  const BlasHandle* known = find_handle(handle);
  if (!known) return kBlasNotInitialized;
  return status(put(known->stream, {.kind = kLowtideDoubleBlas, .name = function}));
}

int cuda_double::missing_blas_stub(const char* function) {
  missing(function);
  return kBlasNotSupported;
}

extern "C" {

int cublasCreate_v2(void** handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  auto made = std::make_unique<BlasHandle>();
  *handle = made.get();
  handles().emplace(*handle, std::move(made));
  return kBlasSuccess;
}

int cublasDestroy_v2(void* handle) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return handles().erase(handle) ? kBlasSuccess : kBlasNotInitialized;
}

int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { known.stream = stream; });
}

int cublasGetStream_v2(void* handle, cudaStream_t* stream) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { *stream = known.stream; });
}

// The workspace must be there when the call runs, but which calls use it cannot be told.
int cublasSetWorkspace_v2(void* handle, void*, size_t) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [](BlasHandle&) {});
}

int cublasSetSmCountTarget(void* handle, int) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [](BlasHandle&) {});
}

int cublasSetMathMode(void* handle, int mode) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { known.math_mode = mode; });
}

int cublasGetMathMode(void* handle, int* mode) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { *mode = known.math_mode; });
}

int cublasSetPointerMode_v2(void* handle, int mode) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { known.pointer_mode = mode; });
}

int cublasGetPointerMode_v2(void* handle, int* mode) {
  CUDA_DOUBLE_CALL();
  return with_handle(handle, [&](BlasHandle& known) { *mode = known.pointer_mode; });
}

int cublasLtMatmulDescCreate(void** descriptor, int, int) {
  CUDA_DOUBLE_CALL();
  return create_descriptor(descriptor);
}
int cublasLtMatmulDescDestroy(void* descriptor) {
  CUDA_DOUBLE_CALL();
  return destroy_descriptor(descriptor);
}
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) {
  CUDA_DOUBLE_CALL();
  return kBlasSuccess;
}
int cublasLtMatrixLayoutCreate(void** descriptor, int, uint64_t, uint64_t, int64_t) {
  CUDA_DOUBLE_CALL();
  return create_descriptor(descriptor);
}
int cublasLtMatrixLayoutDestroy(void* descriptor) {
  CUDA_DOUBLE_CALL();
  return destroy_descriptor(descriptor);
}
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) {
  CUDA_DOUBLE_CALL();
  return kBlasSuccess;
}
int cublasLtMatmulPreferenceCreate(void** descriptor) {
  CUDA_DOUBLE_CALL();
  return create_descriptor(descriptor);
}
int cublasLtMatmulPreferenceDestroy(void* descriptor) {
  CUDA_DOUBLE_CALL();
  return destroy_descriptor(descriptor);
}
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) {
  CUDA_DOUBLE_CALL();
  return kBlasSuccess;
}

// One algorithm that needs no workspace.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int requested,
                                   LtHeuristicResult* results, int* count) {
  CUDA_DOUBLE_CALL();
  if (requested < 1) return kBlasInvalidValue;
  results[0] = {};
  results[0].waves = 1;
  *count = 1;
  return kBlasSuccess;
}

int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                   const void*, void*, void*, void*, const LtAlgorithm*, void*, size_t,
                   cudaStream_t stream) {
  CUDA_DOUBLE_CALL();
  Lock lock;
  return status(put(stream, {.kind = kLowtideDoubleBlas, .name = "cublasLtMatmul"}));
}

}  // extern "C"
