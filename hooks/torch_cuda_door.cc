#include "hooks/torch_cuda_door.h"

#include <array>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "hooks/torch_cuda_allocator.h"
#include "hooks/torch_cuda_guarded.h"

namespace lowtide::hooks {
namespace {

class CallbackHandler final : public PressureHandler {
 public:
  CallbackHandler(int device, LowtideCudaPressure callback, void* context)
      : device_(device), callback_(callback), context_(context) {}
  int64_t free_memory(int64_t need_bytes, int64_t request_bytes) noexcept override {
    return callback_(device_, need_bytes, request_bytes, context_);
  }

 private:
  int device_;
  LowtideCudaPressure callback_;
  void* context_;
};

struct Handlers {
  std::mutex mutex;
  std::array<std::unique_ptr<CallbackHandler>, TorchCudaAllocator::kMaxDevices> of_device;
};

Handlers& handlers() {
  static auto* const instance = new Handlers;
  return *instance;
}

nlohmann::json json_of(const Counter& counter) {
  return {{"current", counter.current}, {"peak", counter.peak}};
}

}  // namespace

std::string& last_cuda_door_error() noexcept {
  thread_local std::string text;
  return text;
}

}  // namespace lowtide::hooks

using lowtide::hooks::CachingCore;
using lowtide::hooks::CallbackHandler;
using lowtide::hooks::TorchCudaAllocator;

extern "C" {

int lowtide_cuda_install(void) {
  return lowtide::hooks::guarded(-1, [] {
    TorchCudaAllocator::install();
    return 0;
  });
}

int lowtide_cuda_uninstall(void) {
  return lowtide::hooks::guarded(-1, [] {
    TorchCudaAllocator::uninstall();
    return 0;
  });
}

int lowtide_cuda_installed(void) { return TorchCudaAllocator::installed() ? 1 : 0; }

const char* lowtide_cuda_error(void) { return lowtide::hooks::last_cuda_door_error().c_str(); }

int lowtide_cuda_set_limit(int device, int64_t reserved_bytes) {
  return lowtide::hooks::guarded(-1, [&] {
    TorchCudaAllocator::set_limit(
        device, reserved_bytes < 0 ? TorchCudaAllocator::kNoLimit : reserved_bytes);
    return 0;
  });
}

int lowtide_cuda_set_pressure(int device, LowtideCudaPressure callback, void* context) {
  return lowtide::hooks::guarded(-1, [&] {
    std::unique_ptr<CallbackHandler> handler;
    if (callback != nullptr) handler = std::make_unique<CallbackHandler>(device, callback, context);
    auto& all = lowtide::hooks::handlers();
    const std::lock_guard lock(all.mutex);
    TorchCudaAllocator::set_pressure_handler(device, handler.get());
    all.of_device[static_cast<size_t>(device)] = std::move(handler);
    return 0;
  });
}

const char* lowtide_cuda_stats_json(int device) {
  return lowtide::hooks::guarded(static_cast<const char*>(nullptr), [&] {
    const auto door = TorchCudaAllocator::stats(device);
    const auto held = TorchCudaAllocator::ledger(device).stats();
    const int64_t limit = TorchCudaAllocator::limit(device);
    nlohmann::json limit_bytes;
    if (limit != TorchCudaAllocator::kNoLimit) limit_bytes = limit;
    thread_local std::string text;
    text =
        nlohmann::json{
            {"device", device},
            {"limit_bytes", limit_bytes},
            {"live_bytes", lowtide::hooks::json_of(held.live)},
            {"active_bytes", lowtide::hooks::json_of(held.active)},
            {"blocks", lowtide::hooks::json_of(held.blocks)},
            {"rounded_bytes", door.rounded_bytes},
            {"reserved_bytes",
             {{"current", door.reserved_bytes}, {"peak", door.reserved_peak_bytes}}},
            {"alloc_calls", held.alloc_calls},
            {"free_calls", held.free_calls},
            {"unknown_frees", held.unknown_frees},
            {"lost_blocks", held.lost_blocks},
            {"limit_hits", door.limit_hits},
            {"pressure_calls", door.pressure_calls},
            {"pressure_bytes", door.pressure_bytes},
            {"failures", door.failures},
        }
            .dump();
    return text.c_str();
  });
}

}  // extern "C"
