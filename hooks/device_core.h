// The caching allocator of one GPU: blocks tied to streams, split and merged inside segments, with
// the statistics of torch's native allocator, an optional hard limit on reserved bytes, and a
// ladder in front of it (give cached segments back -> wait for freed blocks that other streams
// still use
// -> ask the pressure handler to free live memory -> fail, with an account).
//
// Why not CachingCore. That one takes each large block from the system by itself and moves pages
// between segments, which costs a page fault. On a GPU a segment costs a cudaMalloc and a cudaFree
// that waits for the whole device, and at least 2 MiB, so segments are kept and blocks are cut out
// of them. What is freed is moreover not free yet: work that was put on streams earlier still runs.
// The interface and the rules that callers see are the same; tests/contract holds both to them.
//
// Layout. Requests are rounded to 512 bytes. Up to 1 MiB they are cut out of segments of 2 MiB; up
// to 10 MiB out of segments of 20 MiB; above, a segment is the request in whole 2 MiB. The best
// fitting free block of the same stream is taken; a large one's rest is left over only above 1 MiB.
// Those are the native allocator's rules, so the same requests give the same figures. Under a limit
// every byte is dear: rests of 512 bytes are kept too, and where a segment of 20 MiB does not fit,
// one of the request's own size is tried.
//
// Streams. A block belongs to the stream it was allocated on. Freed, it is used again at once, but
// only on that stream, whose order makes that safe. After use_on(block, other) it comes back only
// when an event, recorded on `other` at the free, is complete. Where `other` is being captured, the
// event is recorded after the capture. cudaStreamPerThread names another stream in each thread and
// must not be passed; a stream that is destroyed must have no work left, since its handle may be
// another stream's next.
//
// Pools. Between begin_pool() and end_pool() requests for streams that the filter accepts are
// served from a pool of their own, whose blocks nobody else gets and whose segments stay until its
// last release_pool(): a captured graph may write to them at each replay. While a stream is
// captured, a miss on it gives nothing back and waits for nothing.
//
// Thread safety: all calls, from any thread. The pressure handler and sink run without the core's
// mutex and may free blocks of this core; allocations made inside the handler fail instead of
// asking it again. Sinks hear of a free before the block is anybody else's, waiting blocks
// included. A forked child cannot use the device: there allocations fail and frees only keep the
// books. Nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hooks/backend.h"
#include "hooks/device_account.h"
#include "hooks/device_backend.h"
#include "hooks/device_pool.h"
#include "hooks/device_stats.h"
#include "hooks/ledger.h"
#include "hooks/pressure_handler.h"

namespace lowtide::hooks {

class DeviceCore {
 public:
  static constexpr size_t kMinAlignment = DevicePool::kRounding;
  static constexpr int64_t kNoLimit = DevicePool::kNoLimit;

  explicit DeviceCore(std::unique_ptr<DeviceBackend> backend);
  ~DeviceCore();  // waits for freed blocks, gives every segment back; live blocks become invalid
  DeviceCore(const DeviceCore&) = delete;
  DeviceCore& operator=(const DeviceCore&) = delete;

  // Null when bytes == 0 or when the request cannot be met; 512-byte aligned otherwise.
  [[nodiscard]] void* allocate(size_t bytes, DeviceStream stream = nullptr) noexcept;
  // `block` must come from allocate(); null is ignored. A foreign or already freed address is
  // counted in invalid_frees(), never passed to the device, and false is returned.
  bool free(void* block) noexcept;
  // The block is also used by work of `stream`, now or later until it is freed. False, and counted
  // in invalid_frees(), where there is no such block.
  bool use_on(void* block, DeviceStream stream) noexcept;

  // Bytes asked for when `block` was allocated; 0 when it is not a live block of this core.
  [[nodiscard]] size_t requested_size(const void* block) const noexcept;
  // Bytes the core would round a request to.
  [[nodiscard]] size_t rounded_size(size_t bytes) const noexcept;
  // What `block` was cut out of; empty when it is not a live block of this core.
  [[nodiscard]] Extent segment_of(const void* block) const noexcept;
  [[nodiscard]] DeviceStats stats() const noexcept;
  // peak = current, and the sums begin again at 0, for all flows.
  void reset_peaks() noexcept;
  void reset_sums() noexcept;
  // Gives all cached segments back. Returns bytes.
  int64_t trim() noexcept;

  void set_limit(int64_t reserved_bytes) noexcept;  // kNoLimit = none
  [[nodiscard]] int64_t limit() const noexcept;
  // Handler and sink are not owned; null = none. Both calls return when no other thread is inside
  // the one that was replaced, which may then be destroyed. REQUIRES: the caller holds no lock that
  // the replaced one takes; set_sink() is not called from inside a sink.
  void set_pressure_handler(PressureHandler* handler) noexcept;
  void set_sink(LedgerSink* sink) noexcept;
  [[nodiscard]] int64_t invalid_frees() const noexcept;
  [[nodiscard]] const char* backend_name() const noexcept;
  [[nodiscard]] DeviceMemory device_memory() noexcept;

  // See "Pools" above. `filter` is called under the core's lock and must not call the core. False
  // when there is no memory for the books, or no such pool.
  bool begin_pool(PoolId id, StreamFilter filter) noexcept;
  void end_pool(PoolId id) noexcept;
  bool release_pool(PoolId id) noexcept;

  // Who holds most, first. Linear in the number of blocks; may throw std::bad_alloc.
  [[nodiscard]] std::vector<Holder> largest_holders(size_t most) const;
  // Why a request of `bytes` could not be met, for people: what was asked, limit, reserved, live,
  // cached, waiting, the largest holders, and what to do. May throw std::bad_alloc.
  [[nodiscard]] std::string shortage(size_t bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lowtide::hooks
