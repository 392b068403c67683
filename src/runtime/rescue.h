// Rescue before overwrite: an op is about to write a storage that recipes read.
//
// Recorded writes to storages of the running step need nothing (older versions are replayed). A
// write to an external storage, or one nobody recorded, destroys what a live recipe reads: the
// bytes are cloned once, before the op runs, and every recipe that reads that version finds the
// clone. Usage: add_overwritten() under the runtime's mutex for each written tensor, then run()
// without it.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/runtime_state.h"

namespace lowtide::runtime {

class RescueList {
 public:
  // `record`: the op's own record, null when the op is only watched.
  void add_overwritten(Runtime& runtime, c10::StorageImpl* storage, const OpRecord* record,
                       const OpInfo& info);
  // Clones. Throws what the clone throws (out of memory).
  void run(Runtime& runtime);

 private:
  struct Item {
    std::shared_ptr<Tape> tape;
    int32_t external = -1;
    c10::intrusive_ptr<c10::StorageImpl> original;
  };
  std::vector<Item> items_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> dropped_;  // let go outside the mutex
};

// A copy of all bytes of a storage, on its device.
[[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> clone_storage(
    const c10::intrusive_ptr<c10::StorageImpl>& storage);

}  // namespace lowtide::runtime
