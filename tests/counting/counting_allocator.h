// An independent count of what torch's CPU allocator hands out: decorates whatever allocator is in
// place, adds the bytes asked for, takes them off when a block dies. Shares no code with hooks/, so
// that the product's own figures can be judged by it.
//
// Create it after a session (it then wraps Lowtide's allocator) or around a plain program; destroy
// it before the session. Its books are static: blocks may outlive it. Create and destroy it while
// no other thread allocates; in between all threads may. Bytes are requested bytes.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace lowtide::counting {

struct CountedBytes {
  int64_t current = 0;
  int64_t peak = 0;
};

class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetAllocator(c10::DeviceType::CPU)) { put(this); }
  ~CountingAllocator() override { put(inner_); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  [[nodiscard]] static CountedBytes bytes() {
    const std::lock_guard lock(books().mutex);
    return books().bytes;
  }
  static void reset_peak() {
    const std::lock_guard lock(books().mutex);
    books().bytes.peak = books().bytes.current;
  }

  c10::DataPtr allocate(size_t bytes) override {
    // The inner allocator may free other blocks of ours to make room: no lock is held here.
    c10::DataPtr inner = inner_->allocate(bytes);
    void* const data = inner.get();
    const c10::Device device = inner.device();
    if (data == nullptr) return {nullptr, nullptr, &release, device};
    const std::lock_guard lock(books().mutex);
    CountedBytes& counted = books().bytes;
    counted.current += static_cast<int64_t>(bytes);
    counted.peak = std::max(counted.peak, counted.current);
    books().blocks.emplace(data, Block{std::move(inner), static_cast<int64_t>(bytes)});
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

 private:
  struct Block {
    c10::DataPtr inner;
    int64_t bytes = 0;
  };
  struct Books {
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
    CountedBytes bytes;
  };

  static Books& books() {
    static Books& instance = *new Books;
    return instance;
  }

  static void put(c10::Allocator* allocator) {
    // Only an equal or higher priority replaces an allocator, and torch does not tell which one the
    // present one has.
    for (int priority = 0; priority <= UINT8_MAX; ++priority) {
      c10::SetAllocator(c10::DeviceType::CPU, allocator, static_cast<uint8_t>(priority));
      if (c10::GetAllocator(c10::DeviceType::CPU) == allocator) return;
    }
  }

  static void release(void* data) {
    Block block;  // dies last, outside the lock: its deleter is somebody else's code
    const std::lock_guard lock(books().mutex);
    const auto found = books().blocks.find(data);
    if (found == books().blocks.end()) return;
    block = std::move(found->second);
    books().blocks.erase(found);
    books().bytes.current -= block.bytes;
  }

  c10::Allocator* inner_;
};

}  // namespace lowtide::counting
