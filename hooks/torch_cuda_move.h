// Moves storages to other addresses, through host memory: their blocks are freed before others are
// asked for, so the device never holds both. Everything that reaches the bytes through the storage
// (tensors, views, optimizers) finds them at the new address; a raw pointer, and a captured graph,
// does not, and the caller knows that there is none.
//
// One thread, while no other uses the storages. What throws leaves storages that are in host memory
// where they are until restore() succeeds.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hooks/torch_cuda_arena.h"

namespace lowtide::hooks {

class StorageMove {
 public:
  // Takes those that can be moved: whole blocks of the native allocator on this device, each once.
  StorageMove(std::span<c10::StorageImpl* const> storages, c10::Device device,
              c10::DeleterFnPtr native_deleter);

  [[nodiscard]] const std::vector<int64_t>& sizes() const noexcept { return sizes_; }  // bytes
  [[nodiscard]] std::vector<const void*> addresses() const;

  // Copies all to the host, after the device's work, and frees them. Throws InternalError when the
  // device does not give them, std::bad_alloc without host memory; then nothing has changed.
  void evacuate();
  // Asks the allocator for each again, in order, and fills it. Throws what the allocator throws.
  void restore(c10::Allocator& allocator);

 private:
  std::vector<c10::StorageImpl*> storages_;
  std::vector<int64_t> sizes_;
  std::vector<std::unique_ptr<std::byte[]>> host_;  // null: on the device
  const c10::Device device_;
};

}  // namespace lowtide::hooks
