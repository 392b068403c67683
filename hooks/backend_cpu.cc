#include "hooks/backend_cpu.h"

#include <sys/mman.h>

#include <cstdint>

namespace lowtide::hooks {
namespace {

constexpr size_t kPage = 4096;
constexpr uintptr_t kAlignment = 64 * 1024;

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

void* map(void* where, size_t bytes, int protection, int extra_flags) {
  void* const base =
      mmap(where, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

// Maps `bytes` at an aligned address the slow and sure way: reserve more than needed without access
// (no memory), turn the aligned part into memory, drop the rest. So at no instant is more memory
// mapped than was asked for.
void* map_aligned(size_t bytes) {
  const size_t span = bytes + kAlignment - kPage;
  if (span < bytes) return nullptr;
  auto* const low = static_cast<std::byte*>(map(nullptr, span, PROT_NONE, MAP_NORESERVE));
  if (low == nullptr) return nullptr;
  const size_t head = (kAlignment - address_of(low) % kAlignment) % kAlignment;
  void* const base = map(low + head, bytes, PROT_READ | PROT_WRITE, MAP_FIXED);
  if (base == nullptr) {
    munmap(low, span);
    return nullptr;
  }
  if (head != 0) munmap(low, head);
  const size_t tail = span - head - bytes;
  if (tail != 0) munmap(low + head + bytes, tail);
  return base;
}

class CpuBackend final : public Backend {
 public:
  void* acquire(size_t bytes) noexcept override {
    void* base = nullptr;
    // The kernel honours a free hint, so the place below the last mapping costs one call.
    if (last_ > bytes + kAlignment) {
      const uintptr_t wanted = (last_ - bytes) / kAlignment * kAlignment;
      // A wish, checked below: not an address that is dereferenced.
      void* const hint = reinterpret_cast<void*>(wanted);  // NOLINT(performance-no-int-to-ptr)
      base = map(hint, bytes, PROT_READ | PROT_WRITE, 0);
      if (base != nullptr && address_of(base) % kAlignment != 0) {
        munmap(base, bytes);
        base = nullptr;
      }
    }
    if (base == nullptr) base = map_aligned(bytes);
    if (base != nullptr) last_ = address_of(base);
    return base;
  }

  void give_back(void* base, size_t bytes) noexcept override { munmap(base, bytes); }
  [[nodiscard]] size_t granularity() const noexcept override { return kPage; }
  [[nodiscard]] size_t alignment() const noexcept override { return kAlignment; }
  [[nodiscard]] const char* name() const noexcept override { return "cpu"; }

 private:
  uintptr_t last_ = 0;  // base of the last mapping; 0 = none yet
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace lowtide::hooks
