// A library that has only its name: programs open libcuda.so.1 and libnvidia-ml.so.1 by name and
// look symbols up in what comes back, which includes what that depends on: the CUDA double.
extern "C" const char* lowtide_double_forwards() { return "CUDA double"; }
