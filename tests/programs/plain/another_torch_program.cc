// Linked with a torch of another version (a double).
#include <cstdint>
#include <cstdio>

extern "C" uint64_t aoti_torch_abi_version();

int main() {
  std::printf("torch 2.%d\n", static_cast<int>(aoti_torch_abi_version() >> 48 & 0xFF));
  return 5;
}
