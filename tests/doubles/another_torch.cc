// A double of libtorch_cpu.so: all that tells its version.
#include <cstdint>

extern "C" uint64_t aoti_torch_abi_version() {
  constexpr uint64_t kMajor = 2;
  constexpr uint64_t kMinor = 12;
  return kMajor << 56 | kMinor << 48;
}
