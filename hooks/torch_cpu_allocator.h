// Door D: the caching core as torch's CPU allocator (`c10::SetAllocator(kCPU, ...)`).
//
// install() puts it in; uninstall() puts the previous one back. Tensors allocated by either keep
// their own deleter, so both may be called at any time on one thread while no other thread
// allocates. The object is a process-wide singleton that is never destroyed (tensors may outlive
// main). An allocation that cannot be met throws c10::OutOfMemoryError with the account: request,
// budget, live, cached, and what the session adds through set_account(). Zero bytes give a null
// DataPtr. Needs torch headers; compiled with NDEBUG.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hooks/caching_core.h"

namespace lowtide::hooks {

class TorchCpuAllocator {
 public:
  static CachingCore& core();        // created on first use
  static void install();             // idempotent; counts nested installs
  static void uninstall() noexcept;  // puts the previous allocator back at the last one
  [[nodiscard]] static bool installed() noexcept;
  // Extra text for the out-of-memory error ("largest holders: ..."); called on the failing thread.
  static void set_account(std::function<std::string()> account);
  // Asked, on the failing thread and without locks, for each allocation that cannot be met; true =
  // try again. REQUIRES: it returns true only after it has changed something (the limit).
  static void set_last_resort(std::function<bool(size_t bytes)> last_resort);
};

}  // namespace lowtide::hooks
