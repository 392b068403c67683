// CUDA backend: cudaMalloc and events of one device, through the runtime that the process has.
#pragma once

#include <memory>
#include <string>

#include "hooks/device_backend.h"

namespace lowtide::hooks {

// Null, and why in `why_not` where given, when there is no CUDA runtime or no such device.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_cuda_backend(int device,
                                                               std::string* why_not = nullptr);

}  // namespace lowtide::hooks
