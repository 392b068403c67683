// A piece of device memory and what a device core knows about it. Kept on the host: the core never
// touches what it hands out.
//
// A segment comes from the device in one piece and is covered by its blocks, without gaps. Free
// neighbours are always one block. The pool owns all blocks and segments; the core's lock guards
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "hooks/device_backend.h"

namespace lowtide::hooks {

struct DeviceBlock;
struct FreeList;

struct DeviceSegment {
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t serial = 0;            // 1, 2, 3, ... per pool
  DeviceStream stream = nullptr;  // only work of this stream may follow a free at once
  FreeList* list = nullptr;       // where its free blocks are
};

// What a request looks for.
struct DeviceFit {
  DeviceStream stream = nullptr;
  size_t bytes = 0;
};

// By stream and size, then by age of the segment: the choice depends on the order of calls only,
// never on addresses.
struct ByFit {
  using is_transparent = void;
  bool operator()(const DeviceBlock* a, const DeviceBlock* b) const noexcept;
  bool operator()(const DeviceBlock* a, const DeviceFit& fit) const noexcept;
};
using FreeBlocks = std::set<DeviceBlock*, ByFit>;

struct DeviceBlock {
  // disowned: its free is being reported; waiting: for events of other streams
  enum class State : uint8_t { free, live, disowned, waiting };

  std::byte* base = nullptr;
  size_t bytes = 0;
  size_t requested = 0;  // bytes asked for; live only
  State state = State::free;
  bool used_on_unknown = false;  // there was no memory to note a stream in `users`
  int32_t op = -1;               // that asked for it
  uint32_t events = 0;           // that it waits for
  DeviceSegment* segment = nullptr;
  DeviceBlock* previous = nullptr;  // neighbours in the segment
  DeviceBlock* next = nullptr;
  std::vector<DeviceStream> users;  // streams other than the segment's that use it
  FreeBlocks::node_type node;       // its place in a free list; empty while it is in one

  [[nodiscard]] bool whole_segment() const noexcept {
    return previous == nullptr && next == nullptr;
  }
  [[nodiscard]] bool used_elsewhere() const noexcept { return !users.empty() || used_on_unknown; }

  // Null when out of host memory. A block brings the node of its free list along, so that a free
  // never needs memory.
  [[nodiscard]] static std::unique_ptr<DeviceBlock> make(DeviceSegment* segment, std::byte* base,
                                                         size_t bytes) noexcept;
};

}  // namespace lowtide::hooks
