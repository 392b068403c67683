// Linked into programs that run torch under a sanitizer. Torch keeps singletons for the life of the
// process and its wheel is not instrumented, so leak and ODR reports would speak of its code alone.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1";
}
