#include "hooks/torch_cuda_budget.h"

#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "core/bytes.h"
#include "hooks/device_pool.h"
#include "hooks/holders.h"

namespace lowtide::hooks {
namespace {

constexpr const char* kCallbackName = "lowtide";

thread_local int handling_device = -1;  // this thread is inside its handler

int64_t signed_bytes(size_t bytes) noexcept {
  return static_cast<int64_t>(std::min<size_t>(bytes, std::numeric_limits<int64_t>::max()));
}

// The new segment that a request may need. Expandable segments may need less: then the handler
// frees up to one segment more than it must.
int64_t segment_bytes(size_t requested) noexcept {
  return signed_bytes(DevicePool::segment_bytes(std::min(requested, size_t{1} << 62)));
}

}  // namespace

// --- Making room ------------------------------------------------------------------------------

// Thrown by LimitWatch through the native allocator, whose locks it undoes, to budgeted(). Without
// a backtrace, which would be dear.
class BudgetedCudaAllocator::LimitReached final : public c10::OutOfMemoryError {
 public:
  LimitReached() : OutOfMemoryError("Lowtide: limit reached", nullptr) {}
};

class BudgetedCudaAllocator::PendingRequest {
 public:
  explicit PendingRequest(const Request* request) noexcept { current = request; }
  ~PendingRequest() { current = nullptr; }
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;
  static thread_local const Request* current;
};
thread_local const BudgetedCudaAllocator::Request* BudgetedCudaAllocator::PendingRequest::current =
    nullptr;

// Called by the native allocator, under its lock, when no cached block fits a request.
class BudgetedCudaAllocator::LimitWatch final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    const Request* const request = PendingRequest::current;
    if (request == nullptr) return false;
    Slot& device = request->allocator->slot(request->device);
    if (device.captures > 0 || device.limit == kNoLimit) return false;
    if (request->allocator->over_limit(*request) > 0) throw LimitReached();
    return false;
  }
};

// Calls the native allocator, and makes room as long as there is any to make.
template <typename Call>
std::invoke_result_t<Call> BudgetedCudaAllocator::budgeted(size_t bytes, const Call& call) {
  bool ask = has_handlers_.load(std::memory_order_relaxed) && handling_device < 0;
  const Request request{this, ask ? c10::cuda::current_device() : -1, bytes};
  ask = CudaLedgerWatch::known(request.device);
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
    } else if (!make_room_on_device(request, ask)) {
      fail(failure);
    }
  }
}

// Cached blocks first: the program misses them least. False = nothing is left to free.
bool BudgetedCudaAllocator::make_room_under_limit(const Request& request) {
  ++slot(request.device).counts.limit_hits;
  native()->emptyCache({0, 0});
  const int64_t need = over_limit(request);
  return need <= 0 || give_back_unused(request.device) || ask_handler(request, need) > 0;
}

bool BudgetedCudaAllocator::make_room_on_device(const Request& request, bool ask) {
  const int device = ask ? request.device : c10::cuda::current_device();
  if (!CudaLedgerWatch::known(device) || slot(device).captures > 0) return false;
  if (give_back_unused(device)) return true;
  return ask && ask_handler(request, signed_bytes(request.bytes)) > 0;
}

int64_t BudgetedCudaAllocator::ask_handler(const Request& request, int64_t need_bytes) {
  Slot& device = slot(request.device);
  std::unique_lock lock(device.lock);
  PressureHandler* const asked = device.handler.get();
  if (asked == nullptr) return 0;
  device.handler.enter();
  lock.unlock();
  handling_device = request.device;
  const int64_t freed = asked->free_memory(need_bytes, signed_bytes(request.bytes));
  handling_device = -1;
  device.handler.leave_unlocked();
  ++device.counts.pressure_calls;
  if (freed > 0) device.counts.pressure_bytes += freed;
  return freed;
}

// Bytes by which a new segment for the request would cross the limit.
int64_t BudgetedCudaAllocator::over_limit(const Request& request) {
  const auto stats = native()->getDeviceStats(static_cast<c10::DeviceIndex>(request.device));
  // Subtracted first: both may be huge.
  return stats.reserved_bytes[0].current - slot(request.device).limit +
         segment_bytes(request.bytes);
}

void BudgetedCudaAllocator::fail(const std::exception_ptr& failure) {
  const int device = watch_.devices() > 0 ? c10::cuda::current_device() : -1;
  try {
    std::rethrow_exception(failure);
  } catch (c10::OutOfMemoryError& error) {
    if (CudaLedgerWatch::known(device)) {
      ++slot(device).counts.failures;
      error.add_context(account(device));
    }
    throw;
  }
}

std::string BudgetedCudaAllocator::account(int device) {
  const DeviceLedgerStats held = watch_.ledger(device).stats();
  const auto stats = native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const int64_t limit = slot(device).limit;
  std::string text = "Lowtide: budget ";
  text += limit == kNoLimit ? std::string("none") : format_bytes(limit);
  text += ", live " + format_bytes(held.live.current) + " in " +
          std::to_string(held.blocks.current) + " blocks, reserved " +
          format_bytes(stats.reserved_bytes[0].current);
  const std::string holders = to_text(watch_.ledger(device).largest_holders(5));
  if (!holders.empty()) text += ", largest holders: " + holders;
  std::function<std::string()> more;
  {
    const std::lock_guard lock(mutex_);
    more = slot(device).account;
  }
  if (more) text += ". " + more();
  return text;
}

// --- Settings ---------------------------------------------------------------------------------

void BudgetedCudaAllocator::open() {
  const std::lock_guard lock(mutex_);
  watch_.begin(*native());
  open_ = true;
}

void BudgetedCudaAllocator::close() {
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    for (int device = 0; device < CudaLedgerWatch::kMaxDevices; ++device) {
      Slot& of = slot(device);
      of.limit = kNoLimit;
      of.account = nullptr;
      apply_limit(device);
      of.counts.limit_hits = of.counts.pressure_calls = of.counts.pressure_bytes = 0;
      of.counts.failures = 0;
    }
    watch_.end();
  }
  has_handlers_ = false;
  for (int device = 0; device < CudaLedgerWatch::kMaxDevices; ++device) {
    replace_handler(device, nullptr);
  }
}

void BudgetedCudaAllocator::set_limit(int device, int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  slot(device).limit = reserved_bytes;
  apply_limit(device);
}

// Brings the native allocator's fraction to what user and limit ask for; mutex_ is held.
void BudgetedCudaAllocator::apply_limit(int device) {
  if (device >= watch_.devices()) return;  // not in use yet
  Slot& of = slot(device);
  const auto index = static_cast<c10::DeviceIndex>(device);
  const int64_t limit = of.limit;
  if (limit == kNoLimit) {
    if (std::exchange(of.limited, false)) native()->setMemoryFraction(of.users_fraction, index);
    return;
  }
  if (!std::exchange(of.limited, true)) of.users_fraction = native()->getMemoryFraction(index);
  const auto total = static_cast<double>(native()->getMemoryInfo(index).second);
  // torch multiplies again, and cuts off or rounds, by version: this gives the limit either way.
  const double fraction = (static_cast<double>(limit) + 0.25) / total;
  native()->setMemoryFraction(std::min(of.users_fraction, fraction), index);
}

void BudgetedCudaAllocator::set_pressure_handler(int device, PressureHandler* handler) {
  {
    const std::lock_guard lock(mutex_);
    auto* const callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    if (handler != nullptr && !callbacks->Has(kCallbackName)) {
      callbacks->Register(kCallbackName, [] {
        return std::unique_ptr<c10::FreeMemoryCallback>(std::make_unique<LimitWatch>());
      });
    }
  }
  replace_handler(device, handler);
  bool any = false;
  for (Slot& of : slots_) {
    const std::lock_guard lock(of.lock);
    any = any || of.handler.get() != nullptr;
  }
  has_handlers_ = any;
}

void BudgetedCudaAllocator::set_account(int device, std::function<std::string()> account) {
  const std::lock_guard lock(mutex_);
  slot(device).account = std::move(account);
}

// Without mutex_: it waits for threads that may be asking for it inside the old one.
void BudgetedCudaAllocator::replace_handler(int device, PressureHandler* handler) {
  Slot& of = slot(device);
  of.handler.replace(of.lock, handler, handling_device == device ? 1 : 0);
}

void BudgetedCudaAllocator::capture_changed(int device, int by) noexcept {
  if (CudaLedgerWatch::known(device)) slot(device).captures += by;
}

// --- What torch calls -------------------------------------------------------------------------

c10::DataPtr BudgetedCudaAllocator::allocate(size_t bytes) {
  bool again = false;
  return budgeted(bytes, [&] { return try_allocate(bytes, std::exchange(again, true)); });
}

void* BudgetedCudaAllocator::raw_alloc(size_t bytes) {
  return budgeted(bytes, [&] { return native()->raw_alloc(bytes); });
}

void* BudgetedCudaAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  return budgeted(bytes, [&] { return native()->raw_alloc_with_stream(bytes, stream); });
}

void BudgetedCudaAllocator::init(int device_count) {
  native()->init(device_count);
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  watch_.begin(*native());
  for (int device = 0; device < watch_.devices(); ++device) apply_limit(device);
}

double BudgetedCudaAllocator::getMemoryFraction(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  if (CudaLedgerWatch::known(device) && slot(device).limited) return slot(device).users_fraction;
  return native()->getMemoryFraction(device);
}

void BudgetedCudaAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  native()->setMemoryFraction(fraction, device);  // judges the value first
  if (!CudaLedgerWatch::known(device) || !slot(device).limited) return;
  slot(device).users_fraction = fraction;
  apply_limit(device);
}

void BudgetedCudaAllocator::resetPeakStats(c10::DeviceIndex device) {
  native()->resetPeakStats(device);
  if (CudaLedgerWatch::known(device)) watch_.ledger(device).reset_peaks();
}

void BudgetedCudaAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  native()->resetAccumulatedStats(device);
  if (CudaLedgerWatch::known(device)) watch_.ledger(device).reset_calls();
}

#if TORCH_VERSION_MINOR >= 15

c10::DataPtr BudgetedCudaAllocator::allocateWithAddress(size_t bytes, void* address) {
  return budgeted(bytes, [&] { return native()->allocateWithAddress(bytes, address); });
}

void BudgetedCudaAllocator::markCaptureBegin(c10::DeviceIndex device) {
  native()->markCaptureBegin(device);
  capture_changed(device, 1);
}

void BudgetedCudaAllocator::markCaptureEnd(c10::DeviceIndex device) {
  native()->markCaptureEnd(device);
  capture_changed(device, -1);
}

#else

void BudgetedCudaAllocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                                std::function<bool(cudaStream_t)> filter) {
  native()->beginAllocateToPool(device, pool, std::move(filter));
  capture_changed(device, 1);
}

void BudgetedCudaAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  native()->endAllocateToPool(device, pool);
  capture_changed(device, -1);
}

#endif

}  // namespace lowtide::hooks
