#include "hooks/torch_cuda_allocator.h"

#include <c10/core/Allocator.h>
#include <dlfcn.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "core/error.h"
#include "hooks/torch_cuda_placed.h"

namespace lowtide::hooks {
namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;
static_assert(TorchCudaAllocator::kMaxDevices == CudaLedgerWatch::kMaxDevices);

// Everything lives until the process ends: tensors may outlive main.
struct State {
  std::mutex mutex;  // of install and uninstall
  std::atomic<bool> installed{false};
  PlacedCudaAllocator* allocator = nullptr;  // from the first installation on, always the same
  uint8_t priority = 0;                      // at which ours went in
};

State& state() {
  static auto* const instance = new State;
  return *instance;
}

void check_loaded_torch() {
  const std::string built =
      std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) {
    throw Mismatch("there is no torch in this process. Fix: import or link torch " + built +
                   " before Lowtide's CUDA allocator is installed");
  }
  // torch's own C entry: major << 56 | minor << 48 | patch << 40.
  uint64_t (*version)() = nullptr;
  *reinterpret_cast<void**>(&version) = dlsym(torch, "aoti_torch_abi_version");
  const uint64_t found = version == nullptr ? 0 : version();
  dlclose(torch);
  const unsigned major = found >> 56 & 0xFF;
  const unsigned minor = found >> 48 & 0xFF;
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  const std::string name = version == nullptr
                               ? "an unknown torch"
                               : "torch " + std::to_string(major) + "." + std::to_string(minor);
  throw Mismatch("this process uses " + name + ", Lowtide's CUDA allocator was built for torch " +
                 built + ". Fix: use a Lowtide that was built for the torch in use");
}

native_cuda::CUDAAllocator& native_allocator() {
  native_cuda::CUDAAllocator* const current = native_cuda::allocator.load();
  const std::string name = current == nullptr ? "none" : current->name();
  if (name == "native") return *current;
  const std::string fix =
      name == "cudaMallocAsync"
          ? "take backend:cudaMallocAsync out of PYTORCH_CUDA_ALLOC_CONF"
          : "leave out torch.cuda.memory.change_current_allocator, or use that allocator in a "
            "torch.cuda.MemPool";
  throw InvalidInput(
      "Lowtide's CUDA allocator decorates torch's native one, but this process uses '" + name +
      "'. Fix: " + fix);
}

// As c10::SetAllocator, at the lowest priority from `priority` on that torch accepts, so that
// whoever could replace the allocator before still can. Returns that priority.
uint8_t set_device_allocator(c10::Allocator* wanted, uint8_t priority) {
  for (;; ++priority) {
    c10::SetAllocator(kCuda, wanted, priority);
    if (priority == std::numeric_limits<uint8_t>::max() || c10::GetAllocator(kCuda) == wanted)
      return priority;
  }
}

void check_installed() {
  if (state().installed) return;
  throw InvalidInput("Lowtide's CUDA allocator is not installed. Fix: install it first");
}

}  // namespace

PlacedCudaAllocator& installed_allocator(int device) {
  check_installed();
  PlacedCudaAllocator& allocator = *state().allocator;
  const int devices = allocator.watch().devices();
  const int most = devices > 0 ? devices : TorchCudaAllocator::kMaxDevices;
  if (device >= 0 && device < most) return allocator;
  throw InvalidInput("there is no CUDA device " + std::to_string(device) + " here. Fix: use 0 to " +
                     std::to_string(most - 1));
}

void TorchCudaAllocator::install() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.installed) {
    throw InvalidInput("Lowtide's CUDA allocator is installed already. Fix: install it once");
  }
  check_loaded_torch();
  native_cuda::CUDAAllocator& native = native_allocator();
  if (all.allocator == nullptr) all.allocator = new PlacedCudaAllocator(&native);
  all.allocator->open();
  all.priority = set_device_allocator(all.allocator, 0);
  native_cuda::allocator.store(all.allocator);
  all.installed = true;
}

void TorchCudaAllocator::uninstall() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  check_installed();
  if (native_cuda::allocator.load() == all.allocator && !all.allocator->leave_arenas()) {
    throw InvalidInput(
        "tensors live at planned addresses, and without Lowtide nobody would know them. Fix: free "
        "them first, or leave the allocator in place");
  }
  native_cuda::CUDAAllocator* expected = all.allocator;
  native_cuda::CUDAAllocator* const native = all.allocator->native();
  if (!native_cuda::allocator.compare_exchange_strong(expected, native)) {
    throw InvalidInput("another CUDA allocator ('" + expected->name() +
                       "') was installed after Lowtide's. Fix: take that one out first");
  }
  if (c10::GetAllocator(kCuda) == all.allocator) (void)set_device_allocator(native, all.priority);
  all.installed = false;
  all.allocator->close();
}

bool TorchCudaAllocator::installed() noexcept { return state().installed; }

DeviceLedger& TorchCudaAllocator::ledger(int device) {
  return installed_allocator(device).watch().ledger(device);
}

CudaDoorStats TorchCudaAllocator::stats(int device) {
  PlacedCudaAllocator& allocator = installed_allocator(device);
  CudaDoorStats stats;
  if (device < allocator.watch().devices()) {
    const auto torchs = allocator.getDeviceStats(static_cast<c10::DeviceIndex>(device));
    stats.reserved_bytes = torchs.reserved_bytes[0].current;
    stats.reserved_peak_bytes = torchs.reserved_bytes[0].peak;
    stats.rounded_bytes = torchs.allocated_bytes[0].current;
  }
  const BudgetedCudaAllocator::Counts& counts = allocator.counts(device);
  stats.limit_hits = counts.limit_hits;
  stats.pressure_calls = counts.pressure_calls;
  stats.pressure_bytes = counts.pressure_bytes;
  stats.failures = counts.failures;
  return stats;
}

void TorchCudaAllocator::set_limit(int device, int64_t reserved_bytes) {
  PlacedCudaAllocator& allocator = installed_allocator(device);
  if (reserved_bytes <= 0) {
    throw InvalidInput("a limit of " + std::to_string(reserved_bytes) +
                       " bytes is none. Fix: give more than 0");
  }
  allocator.set_limit(device, reserved_bytes);
}

int64_t TorchCudaAllocator::limit(int device) { return installed_allocator(device).limit(device); }

void TorchCudaAllocator::set_pressure_handler(int device, PressureHandler* handler) {
  installed_allocator(device).set_pressure_handler(device, handler);
}

void TorchCudaAllocator::set_account(int device, std::function<std::string()> account) {
  installed_allocator(device).set_account(device, std::move(account));
}

bool TorchCudaAllocator::capturing(int device) {
  return installed_allocator(device).capturing(device);
}

}  // namespace lowtide::hooks
