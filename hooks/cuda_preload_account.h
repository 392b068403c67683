// What the CUDA memory of one process adds up to, as its calls of the runtime and the driver tell:
// per device, and apart from them managed and pinned memory. The account of door C, the preloaded
// library: no heap (its few pages come from the kernel), constant-initialized, valid before main.
//
// Bytes are as requested. Two kinds of memory have lives of their own: blocks (cudaMalloc and the
// like) live from allocation to free; physical memory (cuMemCreate) lives until its handle is
// released and it is mapped nowhere.
//
// Peaks are exact where calls do not overlap in time. A free is to be told before it is made and an
// allocation after, so that an address that another thread gets at once is never taken for the old
// one: a peak may then miss what one thread was giving back while another one allocated.
//
// Thread safety: all calls, from any thread. Nothing is thrown; what no page was left to note is
// counted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/flat_table.h"
#include "hooks/kernel_memory.h"
#include "hooks/light_lock.h"

namespace lowtide::hooks {

inline constexpr int kPreloadDevices = 64;
inline constexpr int kManagedPlace = kPreloadDevices;
inline constexpr int kPinnedPlace = kPreloadDevices + 1;
inline constexpr int kPreloadPlaces = kPreloadDevices + 2;

struct PlaceFigures {  // of a device, or of managed or pinned memory
  static constexpr int kLargest = 8;
  int64_t live_bytes = 0, peak_bytes = 0;
  int64_t segments = 0, peak_segments = 0;  // live pieces, and the most there were
  int64_t allocations = 0, frees = 0;
  int64_t failures = 0, largest_failure_bytes = 0;  // for want of memory
  // The largest pieces that lived when the peak was last noted, in falling order; 0: no more. It is
  // noted when it has grown by a sixteenth, and when figures are read while it lasts.
  int64_t noted_bytes = 0;
  int64_t largest[kLargest] = {};
};

struct PreloadFigures {
  PlaceFigures places[kPreloadPlaces];
  int64_t unknown_frees = 0;  // of memory that was never told
  int64_t failed_frees = 0;   // of memory that was: it may live on
  int64_t lost = 0;           // not noted: no page, or a device beyond kPreloadDevices
};

class PreloadAccount {
 public:
  constexpr PreloadAccount() = default;
  PreloadAccount(const PreloadAccount&) = delete;
  PreloadAccount& operator=(const PreloadAccount&) = delete;

  // True: the peak has grown by a sixteenth (1 MiB at least) since this was last said.
  bool allocated(int place, uint64_t address, int64_t bytes) noexcept;
  void allocation_failed(int place, int64_t bytes) noexcept;
  // False: null, or memory that was never told, which is counted.
  bool freed(uint64_t address) noexcept;
  void free_failed() noexcept;

  bool created(int place, uint64_t handle, int64_t bytes) noexcept;  // as allocated()
  void imported(uint64_t handle) noexcept;  // another process's memory: 0 bytes of this one
  void retained(uint64_t handle) noexcept;
  bool released(uint64_t handle) noexcept;  // as freed()
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle) noexcept;
  void unmapped(uint64_t address, uint64_t bytes) noexcept;

  void reset(int device) noexcept;  // the device has taken everything back
  void forget_all() noexcept;

  // False: the lock was not to be had within a second (a thread was stopped while it held it), and
  // the figures were read without it.
  bool read(PreloadFigures& out) noexcept;

  // Around a fork, so that the child finds the lock open.
  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

 private:
  struct Piece {  // a block, physical memory, or the mapping of one
    uint64_t key = 0;
    int64_t bytes = 0;
    int32_t place = 0;
    int32_t life = 0;  // of its place: resets end one
    int32_t handles = 0, mappings = 0;
    Piece* physical = nullptr;  // of a mapping
    Piece* next = nullptr;      // unused
  };
  using Table = FlatTable<Piece, KernelMemory>;

  Piece* note(Table& table, uint64_t key) noexcept;
  void forget(Table& table, Piece* piece) noexcept;
  bool begin_life(Table& table, int place, uint64_t key, int64_t bytes) noexcept;
  void end_life(const Piece& piece) noexcept;
  void end_if_unused(Piece* physical) noexcept;
  void end_mapping(Piece* mapping) noexcept;
  void note_largest(int place) noexcept;

  LightLock lock_;  // of everything below
  PreloadFigures figures_;
  int32_t lives_[kPreloadPlaces] = {};
  Table blocks_, physical_, mappings_;
  Piece* unused_ = nullptr;
};

}  // namespace lowtide::hooks
