// The driver's memory functions, as programs get them from the runtime by name: what the real
// lookup found is replaced by a function that counts and calls it. torch's expandable segments are
// made of these (cuMemCreate, cuMemMap ...). Thread-safe, nothing is thrown.
#pragma once

namespace lowtide::hooks {

// `found` where the function has nothing to do with memory, or its version is one whose signature
// differs (before CUDA 3.2; cuGetProcAddress before 12). `version` as the program asked for it.
[[nodiscard]] void* watched_driver_function(const char* name, unsigned version,
                                            void* found) noexcept;

}  // namespace lowtide::hooks
