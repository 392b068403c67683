// Shape of a dense strided tensor over some storage: everything of a tensor but its bytes.
//
// A saved-tensor holder and a recipe keep a `Geometry` instead of a tensor, so that the storage's
// use count says exactly who else owns the bytes. Sizes and strides in elements, offset in
// elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace lowtide::runtime {

struct Geometry {
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;
  c10::DispatchKeySet keys;
  c10::Device device{c10::kCPU};
  bool wrapped_number = false;  // changes type promotion, so it must survive

  void assign(const at::Tensor& tensor);
  // Do all elements lie within a storage of so many bytes?
  [[nodiscard]] bool fits(size_t storage_bytes) const;
  // A fresh tensor without autograd history over `storage`.
  [[nodiscard]] at::Tensor view_of(c10::intrusive_ptr<c10::StorageImpl> storage) const;
  // Of this shape, dtype and device, but without bytes: for ops that read metadata only.
  [[nodiscard]] at::Tensor without_bytes() const;
  // True where the tensor covers a gap-free range of its storage.
  [[nodiscard]] bool dense() const;
};

// True for what a recipe can describe: strided, with storage, no Python subclass, no nested or
// functional wrapper, no meta device.
[[nodiscard]] bool is_plain(const at::Tensor& tensor);

[[nodiscard]] inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace lowtide::runtime
