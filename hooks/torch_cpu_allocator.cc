#include "hooks/torch_cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "core/bytes.h"
#include "hooks/backend_cpu.h"

// Debug switches of torch's own CPU allocator, honoured here as well.
C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace lowtide::hooks {
namespace {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

// Everything lives until the process ends: a tensor may outlive main.
struct State {
  CachingCore core{make_cpu_backend()};
  std::mutex mutex;  // of what is below
  std::function<std::string()> account;
  std::function<bool(size_t)> last_resort;
  c10::Allocator* previous = nullptr;
  uint8_t priority = 0;  // at which ours went in
  int installs = 0;
};

State& state() {
  static auto* const instance = new State;
  return *instance;
}

void report(void* block, int64_t bytes) {
  const CoreStats stats = state().core.stats();
  c10::reportMemoryUsageToProfiler(block, bytes, static_cast<size_t>(stats.requested.current),
                                   static_cast<size_t>(stats.reserved.current), kCpu);
}

void fill_for_debugging(void* block, size_t bytes) {
  if (FLAGS_caffe2_cpu_allocator_do_zero_fill) {
    std::memset(block, 0, bytes);
  } else if (FLAGS_caffe2_cpu_allocator_do_junk_fill) {
    // All ones in every element type: a NaN in each floating-point one.
    std::memset(block, 0xFF, bytes);
  }
}

[[noreturn]] void throw_out_of_memory(size_t bytes) {
  const CachingCore& core = state().core;
  const CoreStats stats = core.stats();
  const int64_t limit = core.limit();
  std::function<std::string()> account;
  {
    const std::lock_guard lock(state().mutex);
    account = state().account;
  }
  const std::string extra = account ? account() : std::string();
  const auto request =
      static_cast<int64_t>(std::min<size_t>(bytes, std::numeric_limits<int64_t>::max()));
  c10::reportOutOfMemoryToProfiler(request, static_cast<size_t>(stats.requested.current),
                                   static_cast<size_t>(stats.reserved.current), kCpu);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "Lowtide: cannot allocate ", format_bytes(request),
                   " (", bytes, " bytes) on the CPU. budget ",
                   limit == CachingCore::kNoLimit ? std::string("none") : format_bytes(limit),
                   ", live ", format_bytes(stats.rounded.current), " in ", stats.blocks.current,
                   " blocks, reserved ", format_bytes(stats.reserved.current), ", cached ",
                   format_bytes(stats.cached), extra.empty() ? "" : ". ", extra);
}

void* allocate_at_last(size_t bytes) {
  std::function<bool(size_t)> last_resort;
  {
    const std::lock_guard lock(state().mutex);
    last_resort = state().last_resort;
  }
  void* block = nullptr;
  while (block == nullptr && last_resort && last_resort(bytes)) {
    block = state().core.allocate(bytes);
  }
  if (block == nullptr) throw_out_of_memory(bytes);
  return block;
}

void free_block(void* block) {
  if (block == nullptr) return;
  CachingCore& core = state().core;
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    const auto bytes = static_cast<int64_t>(core.requested_size(block));
    core.free(block);
    report(block, -bytes);
    return;
  }
  core.free(block);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, kCpu};
    void* block = state().core.allocate(bytes);
    if (block == nullptr) [[unlikely]]
      block = allocate_at_last(bytes);
    fill_for_debugging(block, bytes);
    if (c10::memoryProfilingEnabled()) [[unlikely]]
      report(block, static_cast<int64_t>(bytes));
    return {block, block, &free_block, kCpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

CpuAllocator& allocator() {
  static auto* const instance = new CpuAllocator;
  return *instance;
}

// Registers `wanted` at the lowest priority from `priority` on that torch accepts, so that whoever
// could replace the allocator before still can. Returns that priority.
uint8_t set_torch_allocator(c10::Allocator* wanted, uint8_t priority) {
  for (;; ++priority) {
    c10::SetAllocator(kCpu, wanted, priority);
    if (priority == std::numeric_limits<uint8_t>::max() || c10::GetAllocator(kCpu) == wanted) {
      return priority;
    }
  }
}

}  // namespace

CachingCore& TorchCpuAllocator::core() { return state().core; }

void TorchCpuAllocator::install() {
  const std::lock_guard lock(state().mutex);
  if (state().installs++ > 0) return;
  state().previous = c10::GetAllocator(kCpu);
  state().priority = set_torch_allocator(&allocator(), 0);
}

void TorchCpuAllocator::uninstall() noexcept {
  const std::lock_guard lock(state().mutex);
  if (state().installs == 0 || --state().installs > 0) return;
  // Whoever came after us stays: they delegate to an allocator that lives for ever.
  if (c10::GetAllocator(kCpu) == &allocator()) {
    (void)set_torch_allocator(state().previous, state().priority);
  }
}

bool TorchCpuAllocator::installed() noexcept {
  const std::lock_guard lock(state().mutex);
  return state().installs > 0;
}

void TorchCpuAllocator::set_account(std::function<std::string()> account) {
  const std::lock_guard lock(state().mutex);
  state().account = std::move(account);
}

void TorchCpuAllocator::set_last_resort(std::function<bool(size_t)> last_resort) {
  const std::lock_guard lock(state().mutex);
  state().last_resort = std::move(last_resort);
}

}  // namespace lowtide::hooks
