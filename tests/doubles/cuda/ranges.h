// Which addresses are memory of the double, who accessed them last, and how many bytes each device
// has given away.
//
// Everything here is Locked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base.h"

struct CUstream_st;

namespace cuda_double {

enum class MemoryKind { kDevice, kAsync, kPinned, kRegistered, kMapped };

struct Range {
  uintptr_t begin;
  uint64_t bytes;
  MemoryKind kind;
  int device;
  bool accessible;  // mapped ranges are so only after cuMemSetAccess

  uintptr_t end() const { return begin + bytes; }
  bool on_device() const { return kind != MemoryKind::kPinned && kind != MemoryKind::kRegistered; }
};

class Ranges {
 public:
  static Ranges& instance();

  void insert(const Range& range);
  // By first address; false where there is none.
  bool erase(uintptr_t begin);
  Range* at(uintptr_t begin);
  const Range* containing(uintptr_t address) const;
  // Whether a device may access all of it.
  bool covers(uintptr_t begin, uint64_t bytes) const;
  // Whether the address is in a range that was erased and not given out again. Device addresses are
  // never given out again by cudaMalloc, so that this is exact; the host's are by malloc.
  bool was_freed(uintptr_t address, bool on_device) const;

 private:
  std::map<uintptr_t, Range> live_;
  std::map<uintptr_t, uintptr_t> freed_[2];  // by on_device(); begin -> end
};

// The last access of each stream to each byte.
class Accesses {
 public:
  static Accesses& instance();

  void add(uintptr_t begin, uint64_t bytes, int stream, uint64_t ticket);
  void forget(uintptr_t begin, uint64_t bytes);
  // A stream with work on these bytes that is ordered before neither `next` nor, where `next` is
  // null, what the host does now; -1: there is none.
  int unordered(uintptr_t begin, uint64_t bytes, const CUstream_st* next);

 private:
  struct Entry {
    uintptr_t end;
    std::vector<std::pair<int, uint64_t>> last;  // stream, ticket
  };
  using Map = std::map<uintptr_t, Entry>;
  void split(uintptr_t address);

  Map entries_;  // disjoint
};

// Blocks that an allocator above took back and may not be used until it gives them out again.
class ReturnedBlocks {
 public:
  static ReturnedBlocks& instance();

  void add(uintptr_t begin, uint64_t bytes);
  void remove(uintptr_t begin, uint64_t bytes);
  bool overlaps(uintptr_t begin, uint64_t bytes) const;

 private:
  std::map<uintptr_t, uintptr_t> blocks_;  // begin -> end, disjoint
};

// Removes [begin, end) from a map of disjoint begin -> end intervals; what juts out stays.
void cut(std::map<uintptr_t, uintptr_t>& intervals, uintptr_t begin, uintptr_t end);

// Bytes of one device: what programs have of it, and the most they ever had.
class DeviceBytes {
 public:
  static DeviceBytes& of(int device);

  bool take(uint64_t bytes);  // false, and nothing changed: the device has not that many left
  void give_back(uint64_t bytes) { bytes_ -= bytes; }
  void set_limit(uint64_t bytes) { limit_ = bytes; }
  void reset_largest() { largest_ = bytes_; }

  uint64_t limit() const { return limit_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t largest() const { return largest_; }
  uint64_t left() const { return limit_ > bytes_ ? limit_ - bytes_ : 0; }

 private:
  uint64_t limit_ = settings().memory_bytes;
  uint64_t bytes_ = 0;
  uint64_t largest_ = 0;
};

}  // namespace cuda_double
