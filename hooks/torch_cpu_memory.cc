#include "hooks/torch_cpu_memory.h"

#include <utility>

#include "hooks/torch_cpu_allocator.h"

namespace lowtide::hooks {
namespace {

class TorchCpuMemory final : public TrainingMemory {
 public:
  void open() override { TorchCpuAllocator::install(); }
  void close() noexcept override {
    core_.set_sink(nullptr);
    core_.set_pressure_handler(nullptr);
    core_.set_limit(kNoLimit);
    core_.set_reserved_target(kNoLimit);
    TorchCpuAllocator::set_account(nullptr);
    TorchCpuAllocator::uninstall();
    core_.trim();
  }

  [[nodiscard]] std::string device() const override { return "cpu"; }
  [[nodiscard]] CoreStats stats() const noexcept override { return core_.stats(); }
  void reset_peaks() noexcept override { core_.reset_peaks(); }
  [[nodiscard]] int64_t held_bytes() const noexcept override {
    const CoreStats stats = core_.stats();
    return stats.reserved.current - stats.cached;
  }
  [[nodiscard]] int64_t rounded_size(int64_t bytes) const noexcept override {
    return bytes <= 0 ? 0 : static_cast<int64_t>(core_.rounded_size(static_cast<size_t>(bytes)));
  }
  [[nodiscard]] bool counts(const void* address) const noexcept override {
    return core_.requested_size(address) > 0;
  }
  [[nodiscard]] int64_t outside_bytes() const noexcept override { return 0; }

  int64_t trim() noexcept override { return core_.trim(); }
  void set_limit(int64_t reserved_bytes) override { core_.set_limit(reserved_bytes); }
  [[nodiscard]] int64_t limit() const noexcept override { return core_.limit(); }
  void set_reserved_target(int64_t reserved_bytes) noexcept override {
    core_.set_reserved_target(reserved_bytes);
  }

  void set_pressure_handler(PressureHandler* handler) override {
    core_.set_pressure_handler(handler);
  }
  void set_sink(LedgerSink* sink) noexcept override { core_.set_sink(sink); }
  void set_account(std::function<std::string()> account) override {
    TorchCpuAllocator::set_account(std::move(account));
  }

  [[nodiscard]] std::vector<ReplayHold> replay_holds(
      std::span<const ReplayEvent> events) const override {
    return hooks::replay_holds(events);
  }

 private:
  CachingCore& core_ = TorchCpuAllocator::core();
};

}  // namespace

std::unique_ptr<TrainingMemory> make_torch_cpu_memory() {
  return std::make_unique<TorchCpuMemory>();
}

}  // namespace lowtide::hooks
