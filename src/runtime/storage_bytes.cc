#include "runtime/storage_bytes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <vector>

#include "runtime/internal_guards.h"

namespace lowtide::runtime {
namespace {

// Host copy of a device storage.
at::Tensor on_host(const c10::StorageImpl& storage) {
  const BelowCapture below;
  auto pointer = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      const_cast<c10::StorageImpl*>(&storage));  // NOLINT: counted, not written
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(pointer)), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
  return bytes.cpu();
}

}  // namespace

Digest128 digest_of(const c10::StorageImpl& storage) {
  if (storage.device_type() == c10::DeviceType::CPU) {
    return hash_bytes(storage.data(), storage.nbytes());
  }
  const at::Tensor host = on_host(storage);
  return hash_bytes(host.const_data_ptr(), storage.nbytes());
}

bool same_bytes(const c10::StorageImpl& a, const c10::StorageImpl& b) {
  if (a.nbytes() != b.nbytes()) {
    return false;
  }
  if (a.device_type() == c10::DeviceType::CPU) {
    return a.nbytes() == 0 || std::memcmp(a.data(), b.data(), a.nbytes()) == 0;
  }
  const at::Tensor host_a = on_host(a);
  const at::Tensor host_b = on_host(b);
  return std::memcmp(host_a.const_data_ptr(), host_b.const_data_ptr(), a.nbytes()) == 0;
}

c10::intrusive_ptr<c10::StorageImpl> scratch_storage(const Geometry& geometry) {
  const BelowCapture below;
  int64_t elements = geometry.offset + 1;
  for (size_t i = 0; i < geometry.sizes.size(); ++i) {
    elements += geometry.sizes[i] == 0 ? 0 : (geometry.sizes[i] - 1) * geometry.strides[i];
  }
  const at::Tensor zeros =
      at::zeros({elements}, at::TensorOptions().dtype(geometry.dtype).device(geometry.device));
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(zeros));
}

}  // namespace lowtide::runtime
