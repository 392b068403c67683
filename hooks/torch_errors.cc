// liblowtide_torch_errors.so: what door B throws in a process that has torch
// (torch_errors_loader.h).
#include <c10/util/Exception.h>

extern "C" [[noreturn]] void lowtide_throw_torch_out_of_memory(const char* text);

void lowtide_throw_torch_out_of_memory(const char* text) {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "Lowtide: ", text);
  __builtin_unreachable();
}
