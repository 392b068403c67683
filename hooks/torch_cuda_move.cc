#include "hooks/torch_cuda_move.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "hooks/cuda_runtime.h"

namespace lowtide::hooks {
namespace {

const CudaRuntime& runtime() {
  std::string why_not;
  const CudaRuntime* const cuda = CudaRuntime::find(&why_not);
  if (cuda == nullptr) throw InvalidInput(why_not);
  return *cuda;
}

void check(cudaError_t answer, const char* what) {
  if (answer == cudaSuccess) return;
  throw InternalError(std::string(what) +
                      " failed while tensors were moved: " + runtime().get_error_string(answer));
}

}  // namespace

StorageMove::StorageMove(std::span<c10::StorageImpl* const> storages, c10::Device device,
                         c10::DeleterFnPtr native_deleter)
    : device_(device) {
  for (c10::StorageImpl* const storage : storages) {
    if (storage == nullptr || storage->nbytes() == 0 || storage->device() != device) continue;
    const c10::DataPtr& data = storage->data_ptr();
    if (data.get_deleter() != native_deleter || data.get_context() != data.get()) continue;
    if (std::find(storages_.begin(), storages_.end(), storage) != storages_.end()) continue;
    storages_.push_back(storage);
    sizes_.push_back(static_cast<int64_t>(storage->nbytes()));
  }
}

std::vector<const void*> StorageMove::addresses() const {
  std::vector<const void*> addresses;
  for (const c10::StorageImpl* const storage : storages_) addresses.push_back(storage->data());
  return addresses;
}

void StorageMove::evacuate() {
  const CudaRuntime& cuda = runtime();
  check(cuda.device_synchronize(), "cudaDeviceSynchronize");
  std::vector<std::unique_ptr<std::byte[]>> copies;
  copies.reserve(storages_.size());
  for (size_t i = 0; i < storages_.size(); ++i) {
    const auto bytes = static_cast<size_t>(sizes_[i]);
    copies.emplace_back(new std::byte[bytes]);
    check(cuda.memcpy(copies.back().get(), storages_[i]->data(), bytes, cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  }
  host_ = std::move(copies);
  for (c10::StorageImpl* const storage : storages_) {
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
  }
}

void StorageMove::restore(c10::Allocator& allocator) {
  const CudaRuntime& cuda = runtime();
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (host_[i] == nullptr) continue;
    const auto bytes = static_cast<size_t>(sizes_[i]);
    c10::DataPtr data = allocator.allocate(bytes);
    check(cuda.memcpy(data.get(), host_[i].get(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    storages_[i]->set_data_ptr_noswap(std::move(data));
    host_[i].reset();
  }
}

}  // namespace lowtide::hooks
