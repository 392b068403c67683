// The blocks that a ledger knows. They are made by the hundred and given back at the end only; the
// used ones can be walked. No thread safety. Nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace lowtide::hooks {

enum class BlockState : uint8_t {
  live,
  freed,  // by the program; another stream still uses it
  gone,   // freed before it could be adopted
};

struct HeldBlock {
  int64_t bytes = 0;
  int32_t op = -1;
  BlockState state = BlockState::live;
  void* address = nullptr;
  HeldBlock* next = nullptr;      // of the used or the unused ones
  HeldBlock* previous = nullptr;  // of the used ones
};

class HeldBlocks {
 public:
  // Null when there is no host memory.
  [[nodiscard]] HeldBlock* take() noexcept {
    if (unused_ == nullptr && !grow()) return nullptr;
    HeldBlock* const block = std::exchange(unused_, unused_->next);
    *block = HeldBlock{};
    block->next = used_;
    if (used_ != nullptr) used_->previous = block;
    return used_ = block;
  }
  void put(HeldBlock* block) noexcept {
    (block->previous != nullptr ? block->previous->next : used_) = block->next;
    if (block->next != nullptr) block->next->previous = block->previous;
    block->next = unused_;
    unused_ = block;
  }
  // The first used one, the newest.
  [[nodiscard]] HeldBlock* used() const noexcept { return used_; }

 private:
  static constexpr size_t kChunk = 256;
  struct Chunk {
    std::unique_ptr<Chunk> next;
    HeldBlock blocks[kChunk];
  };

  bool grow() noexcept {
    std::unique_ptr<Chunk> chunk(new (std::nothrow) Chunk);
    if (chunk == nullptr) return false;
    for (HeldBlock& block : chunk->blocks) block.next = std::exchange(unused_, &block);
    chunk->next = std::move(chunks_);
    chunks_ = std::move(chunk);
    return true;
  }

  std::unique_ptr<Chunk> chunks_;
  HeldBlock* unused_ = nullptr;
  HeldBlock* used_ = nullptr;
};

}  // namespace lowtide::hooks
