// Door A: torch's native CUDA allocator, decorated. Every feature of it stays, since it still hands
// out every block; added are a ledger per device, a budget, and a handler that is asked to free
// memory before the budget is out.
//
// How. `install()` stores a CUDAAllocator that passes everything on (torch_cuda_forwarding.h) where
// torch looks for its allocator. Blocks keep the native deleter, whose identity torch relies on:
// with another one `record_stream` does nothing without a word, and graph trees refuse the block.
// The ledger hears of blocks from the native allocator itself, through a trace tracker: in true
// order, with what graphs, pools and checkpoints do, and of blocks that were made before. Hence the
// door may be opened and closed at any time, also while other threads allocate.
//
// Budget. `set_limit()` bounds the reserved bytes of a device. The bound is kept by the native
// allocator's own memory fraction (what the user sets as fraction still counts, and is what the
// user reads back). Before it fails, when no cached block fits and a new segment would cross the
// limit: cached blocks are given back, then the pressure handler is asked, again and again until
// the request fits or nothing is left to free. Then the native allocator fails in its own way, with
// its retries, statistics, history and observers, and its OutOfMemoryError carries our account as
// well. The handler is also asked when the device itself has no more memory. It runs without any
// lock, on the thread that allocates; what it allocates itself does not ask it again. During a CUDA
// graph capture nothing may be given back: the limit holds, the handler is not asked.
//
// Planned addresses: torch_cuda_placement.h. Their blocks come out of one native block, carry a
// deleter of our own, and are in ledger and statistics like all others.
//
// Thread safety: all calls, from any thread. All state lives until the process ends. Needs torch's
// CUDA headers; functions marked so throw lowtide::Error types, nothing else is thrown but what
// torch expects of its allocator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hooks/caching_core.h"
#include "hooks/device_ledger.h"

namespace lowtide::hooks {

struct CudaDoorStats {  // of a device, since the door was opened
  int64_t reserved_bytes = 0;
  int64_t reserved_peak_bytes = 0;
  int64_t rounded_bytes = 0;   // sum of live blocks
  int64_t limit_hits = 0;      // requests that no cached block fitted and the limit stopped
  int64_t pressure_calls = 0;  // of the handler
  int64_t pressure_bytes = 0;  // that it said it freed
  int64_t failures = 0;        // OutOfMemoryErrors that reached the program
};

class TorchCudaAllocator {
 public:
  static constexpr int kMaxDevices = 64;
  static constexpr int64_t kNoLimit = CachingCore::kNoLimit;

  // Throws Mismatch (another torch than this was built for) or InvalidInput (installed already, not
  // the native allocator), and has then changed nothing.
  static void install();
  // Throws InvalidInput when it is not installed, or another allocator was installed after it.
  // Limits and handlers are dropped; blocks live on.
  static void uninstall();
  [[nodiscard]] static bool installed() noexcept;

  // What follows throws InvalidInput for a device outside [0, kMaxDevices), or while not installed.
  [[nodiscard]] static DeviceLedger& ledger(int device);
  [[nodiscard]] static CudaDoorStats stats(int device);
  // Reserved bytes; kNoLimit = none. Before CUDA is in use it is kept for then.
  static void set_limit(int device, int64_t reserved_bytes);
  [[nodiscard]] static int64_t limit(int device);
  // As CachingCore::set_pressure_handler.
  static void set_pressure_handler(int device, PressureHandler* handler);
  // Extra text for the device's out-of-memory errors, asked for on the failing thread; empty =
  // none.
  static void set_account(int device, std::function<std::string()> account);
  // Is a CUDA graph of the device being captured, as far as torch tells?
  [[nodiscard]] static bool capturing(int device);
};

}  // namespace lowtide::hooks
