// What tells a sanitized program, without the sanitizer.
extern "C" void __asan_init() {}
