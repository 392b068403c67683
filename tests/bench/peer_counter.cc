// What a Python peer's CPU tensors need, in requested bytes: the demo programs' independent
// counter, behind a C interface for ctypes. Load it after torch; from then on every allocation is
// counted.
#include "counting/counting_allocator.h"

namespace {

using lowtide::counting::CountingAllocator;

// Never destroyed: tensors outlive the library's own end.
const CountingAllocator& counter = *new CountingAllocator;

}  // namespace

extern "C" {

void lowtide_peer_reset_peak() { CountingAllocator::reset_peak(); }
int64_t lowtide_peer_peak_bytes() { return CountingAllocator::bytes().peak; }

}  // extern "C"
