#include "hooks/mapping_pieces.h"

#include <algorithm>
#include <cstdint>
#include <new>

namespace lowtide::hooks {
namespace {

uint64_t key_of(const void* base) { return reinterpret_cast<uintptr_t>(base); }

}  // namespace

void Pieces::cut(size_t kept_bytes) noexcept {
  size_t kept = 0;
  while (kept_bytes > 0) {
    bytes[kept] = std::min(bytes[kept], kept_bytes);
    kept_bytes -= bytes[kept];
    ++kept;
  }
  count = kept;
}

MappingPieces::~MappingPieces() {
  table_.for_each([](const Pieces* pieces) { delete pieces; });
}

Pieces MappingPieces::of(const void* base, size_t bytes) const noexcept {
  if (const Pieces* const known = table_.find(key_of(base)); known != nullptr) return *known;
  Pieces one;
  one.add(bytes);
  return one;
}

void MappingPieces::record(const void* base, const Pieces& pieces) noexcept {
  forget(base);
  if (pieces.count < 2) return;
  auto* const entry = new (std::nothrow) Pieces(pieces);
  if (entry != nullptr && !table_.insert(key_of(base), entry)) delete entry;
}

void MappingPieces::forget(const void* base) noexcept {
  delete table_.find(key_of(base));
  table_.erase(key_of(base));
}

}  // namespace lowtide::hooks
