#include "runtime/geometry.h"

#include <c10/core/Storage.h>

#include <algorithm>
#include <utility>

namespace lowtide::runtime {

void Geometry::assign(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::IntArrayRef tensor_sizes = impl->sizes();
  const c10::IntArrayRef tensor_strides = impl->strides();
  sizes.assign(tensor_sizes.begin(), tensor_sizes.end());
  strides.assign(tensor_strides.begin(), tensor_strides.end());
  offset = impl->storage_offset();
  dtype = impl->dtype();
  keys = impl->key_set();
  device = impl->device();
  wrapped_number = impl->is_wrapped_number();
}

at::Tensor Geometry::view_of(c10::intrusive_ptr<c10::StorageImpl> storage) const {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (wrapped_number) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

at::Tensor Geometry::without_bytes() const {
  return view_of(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       c10::DataPtr(nullptr, device), nullptr,
                                                       /*resizable=*/false));
}

bool Geometry::fits(size_t storage_bytes) const {
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return true;
    }
    last += (sizes[i] - 1) * strides[i];
  }
  return (static_cast<size_t>(last) + 1) * dtype.itemsize() <= storage_bytes;
}

bool Geometry::dense() const {
  // Dimensions in the order of their strides must tile the range without a gap.
  c10::SmallVector<std::pair<int64_t, int64_t>, 5> dimensions;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return true;
    }
    if (sizes[i] != 1) {
      dimensions.emplace_back(strides[i], sizes[i]);
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool is_plain(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet strange(
      {c10::DispatchKey::Python, c10::DispatchKey::NestedTensor, c10::DispatchKey::Functionalize,
       c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return !impl->key_set().has_any(strange) && impl->layout() == c10::kStrided &&
         impl->has_storage() && !impl->is_meta() && !tensor.is_quantized();
}

}  // namespace lowtide::runtime
