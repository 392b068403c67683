// Finds who throws torch's out-of-memory error, without torch in NEEDED:
// liblowtide_torch_errors.so, in the folder of this library, loaded at the first failure of a
// process that has torch.
//
// Thread safety: all calls. Nothing is thrown.
#pragma once

namespace lowtide::hooks {

// Throws c10::OutOfMemoryError with this text; does not return.
using TorchErrorThrower = void (*)(const char* text);

// Null where the process has no torch, or one that does not fit.
[[nodiscard]] TorchErrorThrower torch_out_of_memory_thrower() noexcept;

}  // namespace lowtide::hooks
