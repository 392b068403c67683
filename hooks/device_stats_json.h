// Statistics of a device core under the names of torch.cuda.memory_stats(), flat, so that a program
// that reads torch's figures reads ours.
#pragma once

#include <cstdint>
#include <string>

#include "hooks/device_stats.h"

namespace lowtide::hooks {

// One JSON object of integers. Figures of features that the core does not have (oversize blocks)
// are 0; what torch does not count begins with "lowtide.". May throw std::bad_alloc.
[[nodiscard]] std::string to_json(const DeviceStats& stats, int64_t limit, int64_t invalid_frees);

}  // namespace lowtide::hooks
