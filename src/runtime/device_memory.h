// The allocator of the device that a session trains on.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "hooks/training_memory.h"

namespace lowtide::runtime {

// "cpu", "cuda" (its first device), "cuda:1". Throws InvalidInput for all else.
[[nodiscard]] c10::Device device_from_text(const std::string& text);

// Not opened yet. On CUDA the device is initialized, and Lowtide's CUDA library is loaded: throws
// InvalidInput where the program has no torch with CUDA, no such device, or the library is not
// there.
[[nodiscard]] std::unique_ptr<hooks::TrainingMemory> memory_of(c10::Device device);

}  // namespace lowtide::runtime
