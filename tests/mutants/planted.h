// Faults planted into copies of the runtime's sources (plant.py): which one is switched on.
//
// The product's sources know nothing of this. The test program is linked with the changed copies,
// which stand in for the library's own code; one fault at a time is on, none at first.
#pragma once

#include "core/trace.h"

namespace lowtide::testing {

enum class Fault : uint8_t {
  none,
  no_rng_restore,
  no_grad_mode_restore,
  batch_norm_not_cloned,
  no_version_check,
  keep_bit_ignored,
  workspace_dropped,
};

inline Fault& planted_fault() {
  static Fault fault = Fault::none;
  return fault;
}
[[nodiscard]] inline bool planted(Fault fault) { return planted_fault() == fault; }

// What an op allocates and frees by itself is forgotten.
inline void drop_workspace(Trace& trace) {
  for (TraceStorage& storage : trace.storages) {
    if (storage.kind == StorageKind::temporary) {
      storage.bytes = storage.rounded_bytes = 0;
    }
  }
}

}  // namespace lowtide::testing
