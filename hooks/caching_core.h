// The caching allocator: size classes and cached segments over a `Backend`, with statistics by
// requested, rounded and reserved bytes, an optional hard limit on reserved bytes, and a ladder in
// front of it (give cached segments back -> ask the pressure handler to free live memory -> fail).
//
// Layout. Small requests (<= kSmallLimit) are blocks of a size class inside 64 KiB slabs. Large
// requests are one segment each, rounded to the backend's granularity, with the block at the very
// start. Segments are aligned to 64 KiB; what is known about them lives in a table keyed by base,
// outside the memory, so the core never touches what it hands out. Segments are never split or
// merged, and an empty slab is a cached 64 KiB segment like any other: reserved = large blocks +
// slabs in use + cached, exactly, and a cached segment can always be given back whole.
// Large reuse: exact size first, then, while neither a limit nor a target is set, the smallest
// cached segment at most 1/16 larger (its whole size counts as rounded). Under a budget every large
// block costs exactly what was asked for, rounded: that is what makes its peak predictable.
//
// Growth rule. A miss that would lift reserved above `reserved_target()` first gives cached
// segments back, the best fitting ones, so that reserved stays at the target while live bytes allow
// it. A miss that would cross `limit()` does the same, then asks the pressure handler, then fails.
// Both count reserved bytes. The backend may make the new segment of the old ones' pages and cache
// what is left over, within the target. Deterministic: with a target of 0 nothing is left over, and
// the same sequence over any backend of the same granularity gives the same reserved peak, which a
// run with that target then keeps (the planner relies on it).
//
// Thread safety: all calls, from any thread. The pressure handler and sink run without the core's
// mutex and may free blocks of this core; allocations made inside the handler do not recurse into
// the handler (they fail at the limit instead... after the cached segments are gone).
// Nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hooks/backend.h"
#include "hooks/counter.h"
#include "hooks/ledger.h"
#include "hooks/pressure_handler.h"
#include "hooks/size_classes.h"

namespace lowtide::hooks {

struct CoreStats {
  Counter requested;             // sum of live requests
  Counter rounded;               // sum of live blocks
  Counter reserved;              // segments held from the backend, live + cached
  Counter blocks;                // live blocks
  int64_t cached = 0;            // part of reserved that could be given back now
  int64_t alloc_calls = 0;       // that returned a block
  int64_t free_calls = 0;        // that ended one; alloc_calls - free_calls = live blocks
  int64_t segment_acquires = 0;  // backend calls
  int64_t segment_returns = 0;
  // Exchanges: misses that gave cached segments back for the new one, and the thread CPU time (ns)
  // that the backend took for them.
  int64_t exchanges = 0;
  int64_t exchange_ns = 0;
  int64_t limit_hits = 0;      // times the ladder was entered because of limit()
  int64_t pressure_bytes = 0;  // bytes the pressure handler said it freed
  int64_t failures = 0;        // allocations that returned null
};

class CachingCore {
 public:
  static constexpr size_t kSmallLimit = 16 * 1024;
  static constexpr size_t kSlabBytes = hooks::kSlabBytes;
  static constexpr size_t kMinAlignment = 64;
  static constexpr int64_t kNoLimit = INT64_MAX;

  explicit CachingCore(std::unique_ptr<Backend> backend);
  ~CachingCore();  // gives every segment back; live blocks become invalid
  CachingCore(const CachingCore&) = delete;
  CachingCore& operator=(const CachingCore&) = delete;

  // Null when bytes == 0 or when the request cannot be met; 64-byte aligned otherwise.
  [[nodiscard]] void* allocate(size_t bytes) noexcept;
  // `block` must come from allocate(); null is ignored. A foreign or already freed address is
  // counted in invalid_frees() and otherwise ignored.
  void free(void* block) noexcept;

  // Bytes asked for when `block` was allocated; 0 when it is not a live block of this core.
  [[nodiscard]] size_t requested_size(const void* block) const noexcept;
  // Bytes the core would round a request to.
  [[nodiscard]] size_t rounded_size(size_t bytes) const noexcept;
  [[nodiscard]] CoreStats stats() const noexcept;
  // peak = current for all counters.
  void reset_peaks() noexcept;
  // Gives all cached segments back (empty slabs included). Returns bytes.
  int64_t trim() noexcept;

  void set_limit(int64_t reserved_bytes) noexcept;  // kNoLimit = none
  [[nodiscard]] int64_t limit() const noexcept;
  void set_reserved_target(int64_t reserved_bytes) noexcept;  // kNoLimit = cache freely (default)
  [[nodiscard]] int64_t reserved_target() const noexcept;
  // Handler and sink are not owned; null = none. Both calls return when no other thread is inside
  // the one that was replaced, which may then be destroyed. REQUIRES: the caller holds no lock that
  // the replaced one takes; set_sink() is not called from inside a sink.
  void set_pressure_handler(PressureHandler* handler) noexcept;
  void set_sink(LedgerSink* sink) noexcept;
  [[nodiscard]] int64_t invalid_frees() const noexcept;
  [[nodiscard]] const char* backend_name() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lowtide::hooks
