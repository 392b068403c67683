#include <algorithm>
#include <cstdint>

#include "hooks/backend_cpu.h"
#include "hooks/page_mover.h"

namespace lowtide::hooks {
namespace {

constexpr uintptr_t kAlignment = 64 * 1024;
// What a user process can address at most; keeps absurd requests failing as they would for real.
constexpr size_t kAddressSpace = size_t{1} << 47;

class CountingBackend final : public Backend {
 public:
  explicit CountingBackend(size_t granularity) : granularity_(granularity) {}

  void* acquire(size_t bytes) noexcept override {
    if (bytes >= kAddressSpace) return nullptr;
    const uintptr_t address = next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    // A made-up address: nobody may dereference it.
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  void give_back(void* /*base*/, size_t /*bytes*/) noexcept override {}
  // Keeps as much of what is left over as the CPU backend would.
  void* exchange(std::span<const Extent> old, size_t bytes, size_t most_rest,
                 Extent& rest) noexcept override {
    size_t left = 0;
    for (const Extent& extent : old) left += extent.bytes;
    left = std::min(left > bytes ? left - bytes : 0, most_rest);
    if (left >= kWorthMoving) rest = {acquire(left), left};
    return acquire(bytes);
  }
  [[nodiscard]] size_t granularity() const noexcept override { return granularity_; }
  [[nodiscard]] size_t alignment() const noexcept override { return kAlignment; }
  [[nodiscard]] const char* name() const noexcept override { return "counting"; }

 private:
  size_t granularity_;
  uintptr_t next_ = kAlignment;
};

}  // namespace

std::unique_ptr<Backend> make_counting_backend(size_t granularity) {
  return std::make_unique<CountingBackend>(granularity);
}

}  // namespace lowtide::hooks
