// Bytes of storages: digests, comparison, scratch memory. Any device; device memory is read through
// the host, which is slow and used only for verification.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "core/hash.h"
#include "runtime/geometry.h"

namespace lowtide::runtime {

[[nodiscard]] Digest128 digest_of(const c10::StorageImpl& storage);
[[nodiscard]] bool same_bytes(const c10::StorageImpl& a, const c10::StorageImpl& b);
// A zero-filled storage large enough for the geometry.
[[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> scratch_storage(const Geometry& geometry);

}  // namespace lowtide::runtime
