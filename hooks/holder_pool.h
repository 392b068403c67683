// The blocks of a ledger: who holds how many bytes. Holders are made by the hundred and given back
// at the end only; the used ones can be walked. No thread safety. Nothing is thrown.
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

struct Holder {
  int64_t bytes = 0;
  int32_t op = -1;
  BlockState state = BlockState::live;
  void* address = nullptr;
  Holder* next = nullptr;      // of the used or the unused ones
  Holder* previous = nullptr;  // of the used ones
};

class HolderPool {
 public:
  // Null when there is no host memory.
  [[nodiscard]] Holder* take() noexcept {
    if (unused_ == nullptr && !grow()) return nullptr;
    Holder* const holder = std::exchange(unused_, unused_->next);
    *holder = Holder{};
    holder->next = used_;
    if (used_ != nullptr) used_->previous = holder;
    return used_ = holder;
  }
  void put(Holder* holder) noexcept {
    (holder->previous != nullptr ? holder->previous->next : used_) = holder->next;
    if (holder->next != nullptr) holder->next->previous = holder->previous;
    holder->next = unused_;
    unused_ = holder;
  }
  // The first used one, the newest.
  [[nodiscard]] Holder* used() const noexcept { return used_; }

 private:
  static constexpr size_t kChunk = 256;
  struct Chunk {
    std::unique_ptr<Chunk> next;
    Holder holders[kChunk];
  };

  bool grow() noexcept {
    std::unique_ptr<Chunk> chunk(new (std::nothrow) Chunk);
    if (chunk == nullptr) return false;
    for (Holder& holder : chunk->holders) holder.next = std::exchange(unused_, &holder);
    chunk->next = std::move(chunks_);
    chunks_ = std::move(chunk);
    return true;
  }

  std::unique_ptr<Chunk> chunks_;
  Holder* unused_ = nullptr;
  Holder* used_ = nullptr;
};

}  // namespace lowtide::hooks
