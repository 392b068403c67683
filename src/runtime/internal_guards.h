// Dispatch state under which Lowtide runs ops of its own: below autograd, autocast and capture.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lowtide::runtime {

inline constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::Fake;

class BelowCapture {
 public:
  BelowCapture() : excluded_(c10::autocast_dispatch_keyset | c10::DispatchKeySet(kCaptureKey)) {}

 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard excluded_;
  at::DisableRecordFunctionGuard no_record_function_;
};

}  // namespace lowtide::runtime
