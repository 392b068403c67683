// What a budget text means on this machine.
#pragma once

#include <cstdint>
#include <string>

namespace lowtide::runtime {

// "2GiB", bytes, "auto" (the cgroup's limit, else available memory), "none" (no limit: INT64_MAX).
// Throws InvalidInput.
[[nodiscard]] int64_t budget_from_text(const std::string& text);

// What the allocator may reserve: the budget less the reserve; no limit stays none. Throws
// InvalidInput where nothing is left. Bytes.
[[nodiscard]] int64_t limit_within(int64_t budget_bytes, int64_t reserve_bytes);

}  // namespace lowtide::runtime
