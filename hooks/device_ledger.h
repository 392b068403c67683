// What one device's allocations add up to, and who holds them, when another allocator hands them
// out: it reports each block's life here, and the ledger keeps the sums and the live blocks.
//
// Bytes are as requested. A block is *live* until the program frees it and *active* until its
// memory may be handed out again, which is later while another stream still uses it.
//
// Blocks that were alive before the ledger began are added by `adopt()`: between `begin_adoption()`
// and `end_adoption()` blocks may come and go on other threads, and what went is not adopted.
//
// Thread safety: all calls, from any thread; several allocators may report to one ledger. Calls of
// `allocated()`, `freed()`, `completed()` and `reserved()` come one after the other, and the sink
// hears of blocks in that order, from inside them, and must not call the allocators or those four.
// Else nothing is thrown; a block that no memory was left to note is counted, not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hooks/counter.h"
#include "hooks/holders.h"
#include "hooks/ledger.h"

namespace lowtide::hooks {

struct DeviceLedgerStats {
  Counter live;    // bytes
  Counter active;  // bytes
  Counter blocks;  // live ones
  int64_t alloc_calls = 0;
  int64_t free_calls = 0;
  int64_t unknown_frees = 0;  // of blocks that the ledger never heard of
  int64_t lost_blocks = 0;    // not noted: no host memory
};

class DeviceLedger {
 public:
  DeviceLedger();
  ~DeviceLedger();
  DeviceLedger(const DeviceLedger&) = delete;
  DeviceLedger& operator=(const DeviceLedger&) = delete;

  void allocated(void* address, int64_t requested_bytes, void* stream) noexcept;
  void freed(void* address, void* stream) noexcept;  // by the program
  void completed(void* address) noexcept;  // may be handed out again; always after freed()
  void reserved(int64_t bytes) noexcept;   // came from the device, or went back (< 0): to the sink

  void begin_adoption() noexcept;  // forgets all blocks and counts
  void adopt(void* address, int64_t requested_bytes, bool live) noexcept;
  void end_adoption() noexcept;  // from here on peaks count

  [[nodiscard]] DeviceLedgerStats stats() const noexcept;
  void reset_peaks() noexcept;
  void reset_calls() noexcept;
  // Of active blocks, at most `most`. Linear in their number; may throw std::bad_alloc.
  [[nodiscard]] std::vector<Holder> largest_holders(size_t most) const;

  // Not owned; null = none. Returns when no other thread is inside the one that was replaced.
  // MemoryEvent::rounded_bytes repeats the request: rounding is the allocator's.
  void set_sink(LedgerSink* sink) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lowtide::hooks
