#include "hooks/device_pool.h"

#include <algorithm>
#include <new>

namespace lowtide::hooks {
namespace {

uint64_t key_of(const void* base) { return reinterpret_cast<uintptr_t>(base); }
int64_t count_of(size_t bytes) { return static_cast<int64_t>(bytes); }
size_t whole_granules(size_t bytes) {
  return (bytes + DevicePool::kGranule - 1) / DevicePool::kGranule * DevicePool::kGranule;
}

bool accepts(const StreamFilter& filter, DeviceStream stream) noexcept {
  try {
    return filter(stream);
  } catch (...) {
    return false;  // somebody else's code: what it threw says that it cannot tell
  }
}

}  // namespace

DevicePool::~DevicePool() {
  for_each([this](DeviceBlock* block) {
    if (block->next == nullptr) {  // the last one of its segment
      DeviceSegment* const segment = block->segment;
      if (!abandoned_) backend_.give_back(segment->base, segment->bytes);
      delete segment;
    }
    // Its list, if it is in one, goes without looking at it: sets compare only to insert and find.
    delete block;
  });
}

DeviceRequest DevicePool::request(size_t bytes, DeviceStream stream) noexcept {
  const size_t needed = rounded(bytes);
  PrivatePool* const pool = routed(stream);
  FreeList& small = pool != nullptr ? pool->small : small_;
  FreeList& large = pool != nullptr ? pool->large : large_;
  return {needed, stream, needed <= kSmallRequest ? &small : &large};
}

int64_t DevicePool::least_growth(const DeviceRequest& request) noexcept {
  return count_of(whole_granules(request.bytes));
}

DeviceBlock* DevicePool::take(const DeviceRequest& request) noexcept {
  FreeBlocks& blocks = request.list->blocks;
  const auto found = blocks.lower_bound(DeviceFit{request.stream, request.bytes});
  if (found == blocks.end() || (*found)->segment->stream != request.stream) return nullptr;
  DeviceBlock* const block = *found;
  HoleChange change;
  leave_list(block, change);
  hand_out(block, request.bytes, change);
  return block;
}

DeviceBlock* DevicePool::grow(const DeviceRequest& request, DeviceMiss& miss) noexcept {
  const auto least = static_cast<size_t>(least_growth(request));
  const size_t wished = segment_bytes(request.bytes);
  for (const size_t bytes : {wished, least}) {
    if (count_of(bytes) > limit_ - stats_.reserved.current) {
      miss = DeviceMiss::limit;
    } else if (DeviceBlock* const block = new_segment(request, bytes); block != nullptr) {
      hand_out(block, request.bytes, {});
      return block;
    } else {
      miss = DeviceMiss::backend;
    }
    if (wished == least) break;
  }
  return nullptr;
}

DeviceBlock* DevicePool::grow_in_exchange(const DeviceRequest& request, DeviceMiss& miss) noexcept {
  const int64_t least = least_growth(request);
  const int64_t excess =
      miss == DeviceMiss::limit ? stats_.reserved.current + least - limit_ : least;
  if (stats_.cached == 0 || excess <= 0) return nullptr;
  give_back_cached(excess);
  DeviceBlock* block = grow(request, miss);
  if (block == nullptr && stats_.cached > 0) {
    give_back_cached(stats_.cached);
    block = grow(request, miss);
  }
  return block;
}

DeviceBlock* DevicePool::new_segment(const DeviceRequest& request, size_t bytes) noexcept {
  std::unique_ptr<DeviceSegment> segment(new (std::nothrow) DeviceSegment);
  if (segment == nullptr) return nullptr;
  *segment = {nullptr, bytes, segments_made_ + 1, request.stream, request.list};
  std::unique_ptr<DeviceBlock> block = DeviceBlock::make(segment.get(), nullptr, bytes);
  if (block == nullptr) return nullptr;
  segment->base = static_cast<std::byte*>(backend_.acquire(bytes));
  if (segment->base == nullptr) return nullptr;
  block->base = segment->base;
  if (!blocks_.insert(key_of(block->base), block.get())) {
    backend_.give_back(segment->base, bytes);
    return nullptr;
  }
  ++segments_made_;
  if (request.list->owner != nullptr) ++request.list->owner->segments;
  ++stats_.segment_acquires;
  account(request.list->small, [&](PoolStats& stats) {
    stats.segments.add(1);
    stats.reserved.add(count_of(bytes));
  });
  segment.release();  // owned by its last block from now on
  return block.release();
}

void DevicePool::hand_out(DeviceBlock* block, size_t bytes, HoleChange change) noexcept {
  const bool small = block->segment->list->small;
  const size_t rest = block->bytes - bytes;
  // Without a limit the native allocator's rule; under one every byte is dear.
  const bool worth_it = small || limit_ != kNoLimit ? rest >= kRounding : rest > kSmallRequest;
  if (worth_it) split(block, bytes, change);
  settle(small, change);
  account(small, [&](PoolStats& stats) {
    stats.active.add(1);
    stats.active_bytes.add(count_of(block->bytes));
  });
}

// Where there is no host memory for the rest, the block keeps it.
void DevicePool::split(DeviceBlock* block, size_t bytes, HoleChange& change) noexcept {
  std::unique_ptr<DeviceBlock> rest =
      DeviceBlock::make(block->segment, block->base + bytes, block->bytes - bytes);
  if (rest == nullptr || !blocks_.insert(key_of(rest->base), rest.get())) return;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest.get();
  block->next = rest.get();
  block->bytes = bytes;
  enter_list(rest.release(), change);
}

void DevicePool::put(DeviceBlock* block) noexcept {
  const bool small = block->segment->list->small;
  account(small, [&](PoolStats& stats) {
    stats.active.take(1);
    stats.active_bytes.take(count_of(block->bytes));
  });
  block->state = DeviceBlock::State::free;
  HoleChange change;
  if (block->next != nullptr && block->next->state == DeviceBlock::State::free) {
    DeviceBlock* const next = block->next;
    leave_list(next, change);
    absorb(block, next);
  }
  if (block->previous != nullptr && block->previous->state == DeviceBlock::State::free) {
    DeviceBlock* const previous = block->previous;
    leave_list(previous, change);
    absorb(previous, block);
    block = previous;
  }
  enter_list(block, change);
  settle(small, change);
}

// `neighbour` is the next one, and neither is in a list.
void DevicePool::absorb(DeviceBlock* block, DeviceBlock* neighbour) noexcept {
  block->bytes += neighbour->bytes;
  block->next = neighbour->next;
  if (block->next != nullptr) block->next->previous = block;
  blocks_.erase(key_of(neighbour->base));
  delete neighbour;
}

void DevicePool::enter_list(DeviceBlock* block, HoleChange& change) noexcept {
  if (block->whole_segment()) {
    stats_.cached += count_of(block->bytes);
  } else {
    change.blocks += 1;
    change.bytes += count_of(block->bytes);
  }
  block->segment->list->blocks.insert(std::move(block->node));
}

void DevicePool::leave_list(DeviceBlock* block, HoleChange& change) noexcept {
  if (block->whole_segment()) {
    stats_.cached -= count_of(block->bytes);
  } else {
    change.blocks -= 1;
    change.bytes -= count_of(block->bytes);
  }
  FreeBlocks& blocks = block->segment->list->blocks;
  block->node = blocks.extract(blocks.find(block));
}

void DevicePool::settle(bool small, const HoleChange& change) noexcept {
  account(small, [&](PoolStats& stats) {
    stats.inactive_split.change(change.blocks);
    stats.inactive_split_bytes.change(change.bytes);
  });
}

DeviceBlock* DevicePool::find(const void* base) const noexcept {
  return base == nullptr ? nullptr : blocks_.find(key_of(base));
}

void DevicePool::give_back_cached(int64_t bytes) noexcept {
  while (bytes > 0 && stats_.cached > 0 && !abandoned_) {
    DeviceBlock* best = nullptr;
    blocks_.for_each([&](DeviceBlock* block) {
      const PrivatePool* const owner = block->segment->list->owner;
      if (block->state != DeviceBlock::State::free || !block->whole_segment()) return;
      if (owner != nullptr && owner->uses > 0) return;
      const auto enough = [&](const DeviceBlock* b) { return count_of(b->bytes) >= bytes; };
      const auto better = [&](const DeviceBlock* b) {
        if (best == nullptr) return true;
        if (enough(b) != enough(best)) return enough(b);
        if (b->bytes != best->bytes) return enough(b) == (b->bytes < best->bytes);
        return b->segment->serial < best->segment->serial;
      };
      if (better(block)) best = block;
    });
    if (best == nullptr) break;  // what is cached belongs to pools in use
    bytes -= count_of(best->bytes);
    release(best);
  }
  forget_empty_pools();
}

void DevicePool::release(DeviceBlock* whole) noexcept {
  HoleChange none;  // a whole segment is no hole
  leave_list(whole, none);
  const std::unique_ptr<DeviceBlock> block(whole);
  const std::unique_ptr<DeviceSegment> segment(whole->segment);
  blocks_.erase(key_of(whole->base));
  if (segment->list->owner != nullptr) --segment->list->owner->segments;
  ++stats_.segment_returns;
  account(segment->list->small, [&](PoolStats& stats) {
    stats.segments.take(1);
    stats.reserved.take(count_of(segment->bytes));
  });
  backend_.give_back(segment->base, segment->bytes);
}

void DevicePool::set_limit(int64_t reserved_bytes) noexcept {
  limit_ = std::max<int64_t>(reserved_bytes, 0);
  give_back_cached(stats_.reserved.current - limit_);
}

PrivatePool* DevicePool::routed(DeviceStream stream) const noexcept {
  for (const Route& route : routes_) {
    if (accepts(route.filter, stream)) return route.pool;
  }
  return nullptr;
}

bool DevicePool::begin_route(PoolId id, StreamFilter filter) noexcept {
  try {
    std::unique_ptr<PrivatePool>& pool = private_pools_[id];
    if (pool == nullptr) pool = std::make_unique<PrivatePool>();
    pool->id = id;
    routes_.push_back({id, std::move(filter), pool.get()});
    ++pool->uses;
    return true;
  } catch (...) {
    forget_empty_pools();
    return false;
  }
}

void DevicePool::end_route(PoolId id) noexcept {
  const auto found =
      std::find_if(routes_.begin(), routes_.end(), [&](const Route& r) { return r.id == id; });
  if (found == routes_.end()) return;
  routes_.erase(found);
  forget_empty_pools();
}

bool DevicePool::release_pool(PoolId id) noexcept {
  const auto found = private_pools_.find(id);
  if (found == private_pools_.end() || found->second->uses == 0) return false;
  --found->second->uses;
  forget_empty_pools();
  return true;
}

void DevicePool::forget_empty_pools() noexcept {
  std::erase_if(private_pools_, [this](const auto& entry) {
    const PrivatePool* const pool = entry.second.get();
    if (pool == nullptr) return true;
    // Released before its route ended: requests may still be led to it.
    const bool routed = std::any_of(routes_.begin(), routes_.end(),
                                    [&](const Route& route) { return route.pool == pool; });
    return !routed && pool->uses == 0 && pool->segments == 0;
  });
}

}  // namespace lowtide::hooks
