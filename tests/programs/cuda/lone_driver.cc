// CUDA's driver by name only: what a program has in its process whose runtime is linked statically.
extern "C" int cuInit(unsigned) { return 0; }
