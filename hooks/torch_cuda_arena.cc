#include "hooks/torch_cuda_arena.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "core/bytes.h"
#include "hooks/backend_cuda.h"

namespace lowtide::hooks {
namespace {

using TorchStats = c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::Stat;

// The thread's current device, for one call.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device)
      : previous_(c10::cuda::ExchangeDevice(static_cast<c10::DeviceIndex>(device))) {}
  ~CurrentDevice() { (void)c10::cuda::MaybeExchangeDevice(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  c10::DeviceIndex previous_;
};

// In the order of BlockFigure.
std::array<c10::CachingDeviceAllocator::StatArray*, ArenaFigures::kFigures> block_stats(
    TorchStats& stats) {
  return {&stats.allocation, &stats.active, &stats.requested_bytes, &stats.allocated_bytes,
          &stats.active_bytes};
}

ArenaFigures::Table table_of(TorchStats& stats) {
  ArenaFigures::Table table;
  const auto arrays = block_stats(stats);
  for (size_t i = 0; i < table.size(); ++i) {
    for (size_t pool = 0; pool < ArenaFigures::kPools; ++pool) {
      const Stat& stat = (*arrays[i])[pool];
      table[i][pool] = {stat.current, stat.peak, stat.allocated, stat.freed};
    }
  }
  return table;
}

}  // namespace

CudaArena::CudaArena(int device, Native& native, CudaLedgerWatch& watch)
    : device_(device), native_(native), watch_(watch), session_(*this) {
  watch_.set_listener(device, this);
}

// --- Memory -----------------------------------------------------------------------------------

bool CudaArena::acquire() noexcept {
  const std::lock_guard lock(mutex_);
  if (!session_.wants_memory()) return false;
  std::string why;
  try {
    const CurrentDevice current(device_);
    const auto bytes = static_cast<size_t>(session_.plan()->bytes);
    auto backend = make_cuda_backend(device_, &why);
    if (backend != nullptr) {
      TorchStats before = native_.getDeviceStats(device().index());
      void* base = nullptr;
      {
        const CudaLedgerWatch::HiddenBlock hidden;
        base = native_.raw_alloc(bytes);
      }
      // Other streams than this may use it at once.
      backend->wait_for_stream(c10::cuda::getCurrentCUDAStream(device().index()).stream());
      figures_.begin(table_of(before), static_cast<int64_t>(bytes), block_bytes_at(base));
      whole_ = base;
      session_.attach(base, std::move(backend));
      watch_reserved();
      return true;
    }
  } catch (const std::exception& error) {
    why = std::string("the arena cannot be had: ") + error.what();
  }
  session_.give_up(std::move(why));
  return false;
}

bool CudaArena::give_back(bool only_unused, bool wait) noexcept {
  const std::lock_guard lock(mutex_);
  const PlacementSession::Detached detached = session_.detach(only_unused, wait);
  if (detached.base == nullptr) return false;
  try {
    const CurrentDevice current(device_);
    c10::DataPtr block(detached.base, detached.base, native_.raw_deleter(), device());
    // The native allocator knows one of its streams only, or none.
    for (const DeviceStream stream : detached.streams) {
      native_.recordStream(block, c10::cuda::getStreamFromExternal(
                                      static_cast<cudaStream_t>(stream), device().index()));
    }
  } catch (const std::exception&) {
    // Without the current device or a stream the block was freed as it was; the device is lost.
  }
  whole_ = nullptr;
  figures_.end();
  return true;
}

int64_t CudaArena::block_bytes_at(const void* address) const {
  for (const auto& segment : native_.snapshot({0, 0}, false).segments) {
    auto at = segment.address;
    for (const auto& block : segment.blocks) {
      if (at == reinterpret_cast<size_t>(address)) return static_cast<int64_t>(block.size);
      at += block.size;
    }
  }
  return 0;
}

int64_t CudaArena::reserved_without(const std::vector<const void*>& addresses) const {
  const std::unordered_set<const void*> leaving(addresses.begin(), addresses.end());
  int64_t bytes = 0;
  for (const auto& segment : native_.snapshot({0, 0}, false).segments) {
    if (segment.device != device().index()) continue;
    auto at = segment.address;
    bool stays = false;
    for (const auto& block : segment.blocks) {
      stays = stays || (block.active && leaving.count(reinterpret_cast<const void*>(at)) == 0);
      at += block.size;
    }
    if (stays) bytes += static_cast<int64_t>(segment.total_size);
  }
  return bytes;
}

int64_t CudaArena::reserved() const {
  return native_.getDeviceStats(device().index()).reserved_bytes[0].current;
}

void CudaArena::watch_reserved() noexcept {
  try {
    most_reserved_ = reserved_at_start_ = watch_.devices() > 0 ? reserved() : 0;
  } catch (const std::exception&) {
    most_reserved_ = reserved_at_start_ = 0;
  }
}

void CudaArena::mark_step() noexcept {
  session_.mark();
  (void)give_back(/*only_unused=*/true, /*wait=*/false);
  try {
    if (watch_.devices() > 0) most_reserved_ = std::max(most_reserved_.load(), reserved());
  } catch (const std::exception&) {
    // A figure less.
  }
}

// --- Who hears of blocks ----------------------------------------------------------------------

void CudaArena::on_allocated(const ArenaBlock& block) noexcept {
  const auto bytes = static_cast<int64_t>(block.requested);
  watch_.ledger(device_).allocated(block.base, bytes, block.stream);
  figures_.allocated(bytes);
  report_to_profiler(block, static_cast<int64_t>(block.bytes));
}

void CudaArena::on_freed(const ArenaBlock& block) noexcept {
  watch_.ledger(device_).freed(block.base, block.stream);
  figures_.freed(static_cast<int64_t>(block.requested));
  report_to_profiler(block, -static_cast<int64_t>(block.bytes));
}

void CudaArena::on_completed(const ArenaBlock& block) noexcept {
  watch_.ledger(device_).completed(block.base);
  figures_.completed(static_cast<int64_t>(block.requested));
}

void CudaArena::native_allocated(void* /*address*/, int64_t requested_bytes) noexcept {
  figures_.others_allocated(requested_bytes);
}

void CudaArena::native_freed(void* /*address*/, int64_t requested_bytes) noexcept {
  figures_.others_freed(requested_bytes);
}

void CudaArena::native_completed(void* address, int64_t requested_bytes) noexcept {
  session_.freed_elsewhere(address);
  figures_.others_completed(requested_bytes);
}

// Totals are the ledger's: the native allocator may not be asked from here.
void CudaArena::report_to_profiler(const ArenaBlock& block, int64_t bytes) const noexcept {
  if (!c10::memoryProfilingEnabled()) [[likely]]
    return;
  try {
    const auto live = static_cast<size_t>(watch_.ledger(device_).stats().live.current);
    c10::reportMemoryUsageToProfiler(block.base, bytes, live,
                                     static_cast<size_t>(most_reserved_.load()), device());
  } catch (const std::exception&) {
    // The profiler misses one.
  }
}

// --- What the native allocator says -----------------------------------------------------------

void CudaArena::correct(TorchStats& stats) {
  ArenaFigures::Table table = table_of(stats);
  figures_.correct(table);
  const auto arrays = block_stats(stats);
  for (size_t i = 0; i < table.size(); ++i) {
    for (size_t pool = 0; pool < ArenaFigures::kPools; ++pool) {
      Stat& stat = (*arrays[i])[pool];
      const ArenaFigures::Figure& figure = table[i][pool];
      stat.current = figure.current;
      stat.peak = figure.peak;
      stat.allocated = figure.allocated;
      stat.freed = figure.freed;
    }
  }
}

void CudaArena::reset_peaks() noexcept {
  try {
    TorchStats now = native_.getDeviceStats(device().index());
    figures_.reset_peaks(table_of(now));
  } catch (const std::exception&) {
    // Peaks stay.
  }
}

// The one block that the arena is becomes its blocks and what is free between them.
void CudaArena::correct(c10::cuda::CUDACachingAllocator::SnapshotInfo& snapshot) const {
  const auto whole = reinterpret_cast<size_t>(whole_.load());
  if (whole == 0) return;
  std::vector<ArenaBlock> held;
  session_.for_each_block([&](const ArenaBlock& block) {
    ArenaBlock& copy = held.emplace_back();
    copy.base = block.base;
    copy.bytes = block.bytes;
    copy.requested = block.requested;
    copy.state = block.state;
  });
  std::sort(held.begin(), held.end(),
            [](const ArenaBlock& a, const ArenaBlock& b) { return a.base < b.base; });
  for (auto& segment : snapshot.segments) {
    size_t at = segment.address;
    for (size_t i = 0; i < segment.blocks.size(); at += segment.blocks[i++].size) {
      if (at != whole) continue;
      auto& blocks = segment.blocks;
      const auto arena = blocks[i];
      segment.requested_size -= arena.requested_size;
      segment.allocated_size -= arena.size;
      segment.active_size -= arena.size;
      decltype(segment.blocks) parts;
      size_t end = whole;
      const auto add_gap = [&](size_t to) {
        if (to <= end) return;
        auto& gap = parts.emplace_back();
        gap.size = to - end;
      };
      for (const ArenaBlock& block : held) {
        const auto begin = reinterpret_cast<size_t>(block.base);
        add_gap(begin);
        auto& part = parts.emplace_back();
        part.size = block.bytes;
        part.requested_size = block.requested;
        part.allocated = block.state == DeviceBlock::State::live;
        part.active = true;
        segment.requested_size += block.requested;
        segment.active_size += block.bytes;
        if (part.allocated) segment.allocated_size += block.bytes;
        end = begin + block.bytes;
      }
      add_gap(whole + arena.size);
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
      blocks.insert(blocks.begin() + static_cast<ptrdiff_t>(i), parts.begin(), parts.end());
      return;
    }
  }
}

}  // namespace lowtide::hooks
