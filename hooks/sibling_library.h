// A library of Lowtide's that is loaded only when it is needed, from the folder of the one that
// asks for it. Thread-safe; nothing is thrown.
#pragma once

namespace lowtide::hooks {

// `own`: any function of the asking library. Null where it cannot be loaded: dlerror() says why.
[[nodiscard]] void* open_sibling_library(const void* own, const char* file_name) noexcept;

}  // namespace lowtide::hooks
