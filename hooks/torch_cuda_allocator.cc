#include "hooks/torch_cuda_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "hooks/callback_slot.h"
#include "hooks/light_lock.h"
#include "hooks/torch_cuda_forwarding.h"

namespace lowtide::hooks {
namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;
constexpr const char* kCallbackName = "lowtide";

class BudgetedCudaAllocator;

struct Device {
  DeviceLedger ledger;
  std::atomic<bool> watching{false};  // changes under the native allocator's lock of the device
  std::atomic<int64_t> limit{TorchCudaAllocator::kNoLimit};
  std::atomic<int> captures{0};  // underway
  std::atomic<int64_t> limit_hits{0}, pressure_calls{0}, pressure_bytes{0}, failures{0};
  LightLock lock;  // of the handler
  CallbackSlot<PressureHandler> handler;
  // Under State::mutex: what the user set, while a limit is in force.
  bool limited = false;
  double users_fraction = 1;
};

// Everything lives until the process ends: tensors may outlive main.
struct State {
  std::mutex
      mutex;  // of install, uninstall and settings; taken before the native allocator's locks
  std::atomic<bool> installed{false};
  std::atomic<bool> has_handlers{false};
  std::array<Device, TorchCudaAllocator::kMaxDevices> devices;
  int watched = 0;           // devices
  bool has_tracker = false;  // it cannot be taken back
  uint8_t priority = 0;      // at which ours went in
  BudgetedCudaAllocator* allocator = nullptr;
};

State& state() {
  static auto* const instance = new State;
  return *instance;
}

// Thrown by LimitWatch through the native allocator, whose locks it undoes, to `budgeted()`.
class LimitReached final : public c10::OutOfMemoryError {
 public:
  LimitReached() : OutOfMemoryError("Lowtide: limit reached", nullptr) {}
};

// The request of this thread that may still be answered by freeing memory.
struct Request {
  int device;
  size_t bytes;
};
thread_local const Request* pending_request = nullptr;
thread_local int handling_device = -1;  // this thread is inside its handler

class PendingRequest {
 public:
  explicit PendingRequest(const Request* request) noexcept { pending_request = request; }
  ~PendingRequest() { pending_request = nullptr; }
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;
};

// The segment that the native allocator makes for a request, by its default sizes. Expandable
// segments may need less: then the handler frees up to one segment more than it must.
int64_t segment_bytes(size_t bytes) noexcept {
  constexpr size_t kMiB = size_t{1} << 20;
  if (bytes <= kMiB) return 2 * kMiB;
  if (bytes < 10 * kMiB) return 20 * kMiB;
  const size_t most = static_cast<size_t>(std::numeric_limits<int64_t>::max()) - 2 * kMiB;
  return static_cast<int64_t>((std::min(bytes, most) + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
}

// Adds Lowtide to what torch prints of an error.
std::string account(native_cuda::CUDAAllocator& native, int device) {
  const Device& of = state().devices[device];
  const DeviceLedgerStats held = of.ledger.stats();
  const auto reserved = native.getDeviceStats(static_cast<c10::DeviceIndex>(device)).reserved_bytes;
  const int64_t limit = of.limit;
  std::string text = "Lowtide: budget ";
  text += limit == TorchCudaAllocator::kNoLimit ? std::string("none") : format_bytes(limit);
  text += ", live " + format_bytes(held.live.current) + " in " +
          std::to_string(held.blocks.current) + " blocks, reserved " +
          format_bytes(reserved[0].current);
  const std::string holders = of.ledger.largest_holders(5);
  if (!holders.empty()) text += ", largest holders: " + holders;
  return text;
}

class BudgetedCudaAllocator final : public ForwardingCudaAllocator {
 public:
  using ForwardingCudaAllocator::ForwardingCudaAllocator;

  c10::DataPtr allocate(size_t bytes) override {
    return budgeted(bytes, [&] { return native()->allocate(bytes); });
  }
  void* raw_alloc(size_t bytes) override {
    return budgeted(bytes, [&] { return native()->raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return budgeted(bytes, [&] { return native()->raw_alloc_with_stream(bytes, stream); });
  }

  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;

  void resetPeakStats(c10::DeviceIndex device) override {
    native()->resetPeakStats(device);
    if (known(device)) state().devices[device].ledger.reset_peaks();
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    native()->resetAccumulatedStats(device);
    if (known(device)) state().devices[device].ledger.reset_calls();
  }

#if TORCH_VERSION_MINOR >= 15
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return budgeted(bytes, [&] { return native()->allocateWithAddress(bytes, address); });
  }
  void markCaptureBegin(c10::DeviceIndex device) override {
    native()->markCaptureBegin(device);
    capture_changed(device, 1);
  }
  void markCaptureEnd(c10::DeviceIndex device) override {
    native()->markCaptureEnd(device);
    capture_changed(device, -1);
  }
#else
  // Captures are not announced: each use of a pool might be one.
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    native()->beginAllocateToPool(device, pool, std::move(filter));
    capture_changed(device, 1);
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    native()->endAllocateToPool(device, pool);
    capture_changed(device, -1);
  }
#endif

  // Bytes by which a new segment for the request would cross the limit.
  [[nodiscard]] int64_t over_limit(int device, size_t bytes) {
    const int64_t limit = state().devices[device].limit;
    const auto stats = native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    // Subtracted first: both may be huge.
    return stats.reserved_bytes[0].current - limit + segment_bytes(bytes);
  }

 private:
  static bool known(int device) noexcept {
    return device >= 0 && device < TorchCudaAllocator::kMaxDevices;
  }
  static void capture_changed(int device, int by) noexcept {
    if (known(device)) state().devices[device].captures += by;
  }

  // Calls the native allocator, and makes room as long as there is any to make.
  template <typename Call>
  std::invoke_result_t<Call> budgeted(size_t bytes, const Call& call) {
    bool ask = state().has_handlers.load(std::memory_order_relaxed) && handling_device < 0;
    const Request request{ask ? c10::cuda::current_device() : -1, bytes};
    ask = ask && known(request.device);
    for (;;) {
      std::exception_ptr failure;
      try {
        const PendingRequest pending(ask ? &request : nullptr);
        return call();
      } catch (const LimitReached&) {
      } catch (const c10::OutOfMemoryError&) {
        failure = std::current_exception();
      }
      // Outside of the handlers: what follows may run a good part of the program.
      if (failure == nullptr) {
        ask = make_room_under_limit(request);
      } else if (!ask || !make_room_on_device(request)) {
        fail(failure);
      }
    }
  }
  bool make_room_under_limit(const Request& request);
  bool make_room_on_device(const Request& request);
  int64_t ask_handler(const Request& request, int64_t need_bytes);
  [[noreturn]] void fail(const std::exception_ptr& failure);
};

// Cached blocks first: the program misses them least. False = nothing is left to free.
bool BudgetedCudaAllocator::make_room_under_limit(const Request& request) {
  ++state().devices[request.device].limit_hits;
  native()->emptyCache({0, 0});
  const int64_t need = over_limit(request.device, request.bytes);
  return need <= 0 || ask_handler(request, need) > 0;
}

bool BudgetedCudaAllocator::make_room_on_device(const Request& request) {
  if (state().devices[request.device].captures > 0) return false;
  const auto bytes =
      static_cast<int64_t>(std::min<size_t>(request.bytes, std::numeric_limits<int64_t>::max()));
  return ask_handler(request, bytes) > 0;
}

int64_t BudgetedCudaAllocator::ask_handler(const Request& request, int64_t need_bytes) {
  Device& device = state().devices[request.device];
  std::unique_lock lock(device.lock);
  PressureHandler* const asked = device.handler.get();
  if (asked == nullptr) return 0;
  device.handler.enter();
  lock.unlock();
  handling_device = request.device;
  const int64_t freed = asked->free_memory(need_bytes, static_cast<int64_t>(request.bytes));
  handling_device = -1;
  device.handler.leave_unlocked();
  ++device.pressure_calls;
  if (freed > 0) device.pressure_bytes += freed;
  return freed;
}

void BudgetedCudaAllocator::fail(const std::exception_ptr& failure) {
  const int device = state().installed ? c10::cuda::current_device() : -1;
  try {
    std::rethrow_exception(failure);
  } catch (c10::OutOfMemoryError& error) {
    if (known(device)) {
      ++state().devices[device].failures;
      error.add_context(account(*native(), device));
    }
    throw;
  }
}

// Called by the native allocator, under its lock, when no cached block fits a request.
class LimitWatch final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    const Request* const request = pending_request;
    if (request == nullptr) return false;
    const Device& device = state().devices[request->device];
    if (device.captures > 0 || device.limit == TorchCudaAllocator::kNoLimit) return false;
    if (state().allocator->over_limit(request->device, request->bytes) > 0) throw LimitReached();
    return false;
  }
};

// --- The ledger -------------------------------------------------------------------------------

// While this thread takes the snapshot that `watch()` begins with: the device that comes next.
thread_local int snapshot_device = -1;

void on_trace(const native_cuda::TraceEntry& entry) noexcept {
  using Entry = native_cuda::TraceEntry;
  if (entry.action_ == Entry::SNAPSHOT && snapshot_device >= 0) {
    // The native allocator goes through its devices in order, each under its own lock: what the
    // snapshot holds is exactly what was there before the first event that we count.
    if (snapshot_device >= TorchCudaAllocator::kMaxDevices) return;
    Device& device = state().devices[snapshot_device++];
    device.ledger.begin_adoption();
    device.watching = true;
    return;
  }
  Device& device = state().devices[entry.device_];
  if (!device.watching.load(std::memory_order_relaxed)) return;
  auto* const address = reinterpret_cast<void*>(entry.addr_);
  switch (entry.action_) {
    case Entry::ALLOC:
      device.ledger.allocated(address, static_cast<int64_t>(entry.size_), entry.stream_);
      break;
    case Entry::FREE_REQUESTED:
      device.ledger.freed(address, entry.stream_);
      break;
    case Entry::FREE_COMPLETED:
      device.ledger.completed(address);
      break;
    default:
      break;
  }
}

native_cuda::SnapshotInfo snapshot_and_begin(native_cuda::CUDAAllocator& native, int& devices) {
  struct Scope {
    Scope() { snapshot_device = 0; }
    ~Scope() { snapshot_device = -1; }
  } const scope;
  native_cuda::SnapshotInfo found = native.snapshot({0, 0}, /*include_traces=*/false);
  devices = snapshot_device;
  return found;
}

// From here on the ledgers follow; State::mutex is held. Nothing to do before CUDA is in use.
void watch(native_cuda::CUDAAllocator& native) {
  State& all = state();
  if (all.watched > 0 || !native.initialized()) return;
  if (!all.has_tracker) {
    native.attachAllocatorTraceTracker([](const native_cuda::TraceEntry& entry) {
      if (static_cast<size_t>(entry.device_) < state().devices.size()) on_trace(entry);
    });
    all.has_tracker = true;
  }
  const native_cuda::SnapshotInfo found = snapshot_and_begin(native, all.watched);
  for (const auto& segment : found.segments) {
    if (segment.device >= all.watched) continue;
    auto* address = reinterpret_cast<char*>(segment.address);
    for (const auto& block : segment.blocks) {
      if (block.active) {
        all.devices[segment.device].ledger.adopt(
            address, static_cast<int64_t>(block.requested_size), block.allocated);
      }
      address += block.size;
    }
  }
  for (int i = 0; i < all.watched; ++i) all.devices[i].ledger.end_adoption();
}

// --- The limit --------------------------------------------------------------------------------

// Brings the native allocator's fraction to what user and limit ask for; State::mutex is held.
void apply_limit(native_cuda::CUDAAllocator& native, int index) {
  Device& device = state().devices[index];
  if (index >= state().watched) return;  // not in use yet
  const auto native_index = static_cast<c10::DeviceIndex>(index);
  const int64_t limit = device.limit;
  if (limit == TorchCudaAllocator::kNoLimit) {
    if (std::exchange(device.limited, false))
      native.setMemoryFraction(device.users_fraction, native_index);
    return;
  }
  if (!std::exchange(device.limited, true))
    device.users_fraction = native.getMemoryFraction(native_index);
  const auto total = static_cast<double>(native.getMemoryInfo(native_index).second);
  // torch cuts off the product: half a byte more makes it the limit, not one less.
  const double fraction = (static_cast<double>(limit) + 0.5) / total;
  native.setMemoryFraction(std::min(device.users_fraction, fraction), native_index);
}

void BudgetedCudaAllocator::init(int device_count) {
  native()->init(device_count);
  const std::lock_guard lock(state().mutex);
  if (!state().installed) return;
  watch(*native());
  for (int i = 0; i < state().watched; ++i) apply_limit(*native(), i);
}

double BudgetedCudaAllocator::getMemoryFraction(c10::DeviceIndex device) {
  const std::lock_guard lock(state().mutex);
  if (known(device) && state().devices[device].limited)
    return state().devices[device].users_fraction;
  return native()->getMemoryFraction(device);
}

void BudgetedCudaAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  const std::lock_guard lock(state().mutex);
  native()->setMemoryFraction(fraction, device);  // judges the value first
  if (!known(device) || !state().devices[device].limited) return;
  state().devices[device].users_fraction = fraction;
  apply_limit(*native(), device);
}

// --- Open and close ---------------------------------------------------------------------------

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

// State::mutex is held.
Device& device_of(int index) {
  if (!state().installed) {
    throw InvalidInput("Lowtide's CUDA allocator is not installed. Fix: install it first");
  }
  const int watched = state().watched;
  if (index < 0 || index >= TorchCudaAllocator::kMaxDevices || (watched > 0 && index >= watched)) {
    throw InvalidInput(
        "there is no CUDA device " + std::to_string(index) + " here. Fix: use 0 to " +
        std::to_string((watched > 0 ? watched : TorchCudaAllocator::kMaxDevices) - 1));
  }
  return state().devices[index];
}

void note_handlers() {
  bool any = false;
  for (Device& device : state().devices) {
    const std::lock_guard lock(device.lock);
    any = any || device.handler.get() != nullptr;
  }
  state().has_handlers = any;
}

}  // namespace

void TorchCudaAllocator::install() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.installed) {
    throw InvalidInput("Lowtide's CUDA allocator is installed already. Fix: install it once");
  }
  check_loaded_torch();
  native_cuda::CUDAAllocator& native = native_allocator();
  if (all.allocator == nullptr) all.allocator = new BudgetedCudaAllocator(&native);
  watch(native);
  all.priority = set_device_allocator(all.allocator, 0);
  native_cuda::allocator.store(all.allocator);
  all.installed = true;
}

void TorchCudaAllocator::uninstall() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (!all.installed) {
    throw InvalidInput("Lowtide's CUDA allocator is not installed. Fix: install it first");
  }
  native_cuda::CUDAAllocator* expected = all.allocator;
  native_cuda::CUDAAllocator* const native = all.allocator->native();
  if (!native_cuda::allocator.compare_exchange_strong(expected, native)) {
    throw InvalidInput("another CUDA allocator ('" + expected->name() +
                       "') was installed after Lowtide's. Fix: take that one out first");
  }
  if (c10::GetAllocator(kCuda) == all.allocator) (void)set_device_allocator(native, all.priority);
  all.installed = false;
  all.has_handlers = false;
  for (int i = 0; i < kMaxDevices; ++i) {
    Device& device = all.devices[i];
    device.limit = kNoLimit;
    apply_limit(*native, i);
    device.watching = false;
    device.handler.replace(device.lock, nullptr, handling_device == i ? 1 : 0);
    device.ledger.set_sink(nullptr);
    device.limit_hits = device.pressure_calls = device.pressure_bytes = device.failures = 0;
  }
  all.watched = 0;
}

bool TorchCudaAllocator::installed() noexcept { return state().installed; }

DeviceLedger& TorchCudaAllocator::ledger(int device) {
  const std::lock_guard lock(state().mutex);
  return device_of(device).ledger;
}

CudaDoorStats TorchCudaAllocator::stats(int device) {
  const std::lock_guard lock(state().mutex);
  const Device& of = device_of(device);
  CudaDoorStats stats;
  if (device < state().watched) {
    const auto native =
        state().allocator->native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    stats.reserved_bytes = native.reserved_bytes[0].current;
    stats.reserved_peak_bytes = native.reserved_bytes[0].peak;
    stats.rounded_bytes = native.allocated_bytes[0].current;
  }
  stats.limit_hits = of.limit_hits;
  stats.pressure_calls = of.pressure_calls;
  stats.pressure_bytes = of.pressure_bytes;
  stats.failures = of.failures;
  return stats;
}

void TorchCudaAllocator::set_limit(int device, int64_t reserved_bytes) {
  const std::lock_guard lock(state().mutex);
  Device& of = device_of(device);
  if (reserved_bytes <= 0) {
    throw InvalidInput("a limit of " + std::to_string(reserved_bytes) +
                       " bytes is none. Fix: give more than 0");
  }
  of.limit = reserved_bytes;
  apply_limit(*state().allocator->native(), device);
}

int64_t TorchCudaAllocator::limit(int device) {
  const std::lock_guard lock(state().mutex);
  return device_of(device).limit;
}

void TorchCudaAllocator::set_pressure_handler(int device, PressureHandler* handler) {
  Device* of = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    of = &device_of(device);
    auto* const callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    if (handler != nullptr && !callbacks->Has(kCallbackName)) {
      callbacks->Register(kCallbackName, [] {
        return std::unique_ptr<c10::FreeMemoryCallback>(std::make_unique<LimitWatch>());
      });
    }
  }
  // Without our mutex: it waits for other threads, which may be asking for it inside the old one.
  of->handler.replace(of->lock, handler, handling_device == device ? 1 : 0);
  note_handlers();
}

}  // namespace lowtide::hooks
