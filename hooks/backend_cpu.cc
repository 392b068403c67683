#include "hooks/backend_cpu.h"

#include <sys/mman.h>

#include <cstdint>

#include "hooks/page_mover.h"

namespace lowtide::hooks {
namespace {

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Maps `bytes` at an aligned address the slow and sure way. At no instant is more memory mapped
// than was asked for.
void* map_aligned(size_t bytes) {
  void* const place = reserve_address_space(bytes);
  if (place == nullptr) return nullptr;
  void* const base = map_pages(place, bytes, PROT_READ | PROT_WRITE, MAP_FIXED);
  if (base == nullptr) munmap(place, bytes);
  return base;
}

class CpuBackend final : public Backend {
 public:
  void* acquire(size_t bytes) noexcept override {
    void* base = nullptr;
    // The kernel honours a free hint, so the place below the last mapping costs one call.
    if (last_ > bytes + kSegmentAlignment) {
      const uintptr_t wanted = (last_ - bytes) / kSegmentAlignment * kSegmentAlignment;
      // A wish, checked below: not an address that is dereferenced.
      void* const hint = reinterpret_cast<void*>(wanted);  // NOLINT(performance-no-int-to-ptr)
      base = map_pages(hint, bytes, PROT_READ | PROT_WRITE, 0);
      if (base != nullptr && address_of(base) % kSegmentAlignment != 0) {
        munmap(base, bytes);
        base = nullptr;
      }
    }
    if (base == nullptr) base = map_aligned(bytes);
    if (base != nullptr) last_ = address_of(base);
    return base;
  }

  void give_back(void* base, size_t bytes) noexcept override {
    mover_.forget(base);
    munmap(base, bytes);
  }

  void* exchange(std::span<const Extent> old, size_t bytes, size_t most_rest,
                 Extent& rest) noexcept override {
    void* const base = mover_.exchange(old, bytes, most_rest, rest);
    return base != nullptr ? base : acquire(bytes);
  }

  [[nodiscard]] size_t granularity() const noexcept override { return kPageBytes; }
  [[nodiscard]] size_t alignment() const noexcept override { return kSegmentAlignment; }
  [[nodiscard]] const char* name() const noexcept override { return "cpu"; }

 private:
  uintptr_t last_ = 0;  // base of the last mapping; 0 = none yet
  PageMover mover_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace lowtide::hooks
