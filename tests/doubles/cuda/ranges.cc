#include "ranges.h"

#include <algorithm>

#include "timeline.h"

namespace cuda_double {

void cut(std::map<uintptr_t, uintptr_t>& intervals, uintptr_t begin, uintptr_t end) {
  auto at = intervals.lower_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second > begin) --at;
  while (at != intervals.end() && at->first < end) {
    const auto [first, last] = *at;
    at = intervals.erase(at);
    if (first < begin) intervals.emplace(first, begin);
    if (last > end) intervals.emplace(end, last);
  }
}

Ranges& Ranges::instance() {
  static Ranges& result = *new Ranges;
  return result;
}

void Ranges::insert(const Range& range) {
  live_[range.begin] = range;
  for (auto& freed : freed_) cut(freed, range.begin, range.end());
}

bool Ranges::erase(uintptr_t begin) {
  const auto at = live_.find(begin);
  if (at == live_.end()) return false;
  freed_[at->second.on_device()][begin] = at->second.end();
  Accesses::instance().forget(begin, at->second.bytes);
  ReturnedBlocks::instance().remove(begin, at->second.bytes);
  live_.erase(at);
  return true;
}

Range* Ranges::at(uintptr_t begin) {
  const auto at = live_.find(begin);
  return at == live_.end() ? nullptr : &at->second;
}

const Range* Ranges::containing(uintptr_t address) const {
  auto at = live_.upper_bound(address);
  if (at == live_.begin()) return nullptr;
  --at;
  return address < at->second.end() ? &at->second : nullptr;
}

bool Ranges::covers(uintptr_t begin, uint64_t bytes) const {
  const uintptr_t end = begin + bytes;
  while (begin < end) {
    const Range* range = containing(begin);
    if (!range || !range->on_device() || !range->accessible) return false;
    begin = range->end();
  }
  return true;
}

bool Ranges::was_freed(uintptr_t address, bool on_device) const {
  const auto& freed = freed_[on_device];
  const auto at = freed.upper_bound(address);
  return at != freed.begin() && address < std::prev(at)->second;
}

Accesses& Accesses::instance() {
  static Accesses& result = *new Accesses;
  return result;
}

void Accesses::split(uintptr_t address) {
  auto at = entries_.lower_bound(address);
  if (at == entries_.begin()) return;
  --at;
  if (at->second.end <= address) return;
  entries_[address] = at->second;
  at->second.end = address;
}

void Accesses::add(uintptr_t begin, uint64_t bytes, int stream, uint64_t ticket) {
  if (bytes == 0) return;
  const uintptr_t end = begin + bytes;
  split(begin);
  split(end);
  auto at = entries_.lower_bound(begin);
  while (begin < end) {
    if (at == entries_.end() || at->first > begin) {
      const uintptr_t gap_end = at == entries_.end() ? end : std::min(end, at->first);
      at = entries_.emplace_hint(at, begin, Entry{gap_end, {}});
    }
    auto& last = at->second.last;
    const auto mine = std::find_if(last.begin(), last.end(),
                                   [&](const auto& entry) { return entry.first == stream; });
    if (mine == last.end()) {
      last.emplace_back(stream, ticket);
    } else {
      mine->second = ticket;
    }
    begin = at->second.end;
    ++at;
  }
}

void Accesses::forget(uintptr_t begin, uint64_t bytes) {
  split(begin);
  split(begin + bytes);
  entries_.erase(entries_.lower_bound(begin), entries_.lower_bound(begin + bytes));
}

int Accesses::unordered(uintptr_t begin, uint64_t bytes, const CUstream_st* next) {
  const Timeline& timeline = Timeline::instance();
  auto at = entries_.lower_bound(begin);
  if (at != entries_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != entries_.end() && at->first < begin + bytes) {
    auto& last = at->second.last;
    // What the host knows to be complete can never matter again.
    std::erase_if(last, [&](const auto& entry) {
      return timeline.host_knows_complete(entry.first, entry.second);
    });
    for (const auto& [stream, ticket] : last) {
      if (!next || !timeline.ordered_before(stream, ticket, *next)) return stream;
    }
    at = last.empty() ? entries_.erase(at) : std::next(at);
  }
  return -1;
}

ReturnedBlocks& ReturnedBlocks::instance() {
  static ReturnedBlocks& result = *new ReturnedBlocks;
  return result;
}

void ReturnedBlocks::add(uintptr_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  cut(blocks_, begin, begin + bytes);
  blocks_[begin] = begin + bytes;
}

void ReturnedBlocks::remove(uintptr_t begin, uint64_t bytes) { cut(blocks_, begin, begin + bytes); }

bool ReturnedBlocks::overlaps(uintptr_t begin, uint64_t bytes) const {
  const auto at = blocks_.lower_bound(begin + bytes);
  return at != blocks_.begin() && std::prev(at)->second > begin;
}

DeviceBytes& DeviceBytes::of(int device) {
  static auto& devices = *new std::vector<DeviceBytes>(settings().devices);
  return devices.at(device);
}

bool DeviceBytes::take(uint64_t bytes) {
  if (bytes > left()) return false;
  bytes_ += bytes;
  largest_ = std::max(largest_, bytes_);
  return true;
}

}  // namespace cuda_double
