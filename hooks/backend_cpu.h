// CPU backend: anonymous mappings, 4 KiB granularity, 64 KiB alignment. Bytes given back leave the
// process at once, so its resident size follows `reserved`.
#pragma once

#include <memory>

#include "hooks/backend.h"

namespace lowtide::hooks {

[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend();

// Counts instead of allocating: hands out made-up addresses of the same granularity and alignment,
// which nobody may touch (a core never touches what it hands out). Used to replay an allocation
// sequence.
[[nodiscard]] std::unique_ptr<Backend> make_counting_backend(size_t granularity = 4096);

}  // namespace lowtide::hooks
