// libFuzzer's side of a target. Its own mutations rarely leave a JSON text whole, so most inputs
// are valid files with a few changes; coverage decides which of them are changed further.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/fuzz_target.h"
#include "fuzz/texts.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)lowtide::fuzz::accepted({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  lowtide::fuzz::Random random(seed);
  const uint64_t way = random() % 8;
  if (size > 1 && way == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text = size <= 1 || way <= 3 ? lowtide::fuzz::valid_text(random)
                                           : std::string(reinterpret_cast<char*>(data), size);
  for (uint64_t changes = random() % 4; changes > 0; --changes) {
    lowtide::fuzz::change(random, text);
  }
  text.resize(std::min(text.size(), max_size));
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
