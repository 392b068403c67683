// Drives a libFuzzer entry without libFuzzer: valid files, changed more and more, from one seed.
// `fuzz_x [--seconds N] [--seed S] [FILE ...]`; files are run as they are (to repeat a finding).
// Prints what it did; exit 1 when it never saw a text accepted or never one refused.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/trace_file.h"
#include "unit/core/random_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Random = std::mt19937_64;

// Pieces that readers trip over more often than over random bytes.
constexpr const char* kPieces[] = {"null",
                                   "-1",
                                   "1e999",
                                   "9223372036854775808",
                                   "0.5",
                                   "\"\"",
                                   "[]",
                                   "{}",
                                   "[[[[[[",
                                   "true",
                                   "\\u0000",
                                   "\xff",
                                   "\"",
                                   ",",
                                   "}",
                                   "]",
                                   "-0",
                                   "1e-999",
                                   "18446744073709551616",
                                   "\"drop\"",
                                   "\n",
                                   "\"x\":1,",
                                   "2147483647"};

int run(const std::string& text) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

size_t place(Random& random, const std::string& text) { return random() % (text.size() + 1); }

void change(Random& random, std::string& text) {
  const size_t at = place(random, text);
  switch (random() % 6) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random());
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>('0' + random() % 10);
      break;
    case 2:
      text.erase(at, random() % 20);
      break;
    case 3:
      text.insert(at, kPieces[random() % std::size(kPieces)]);
      break;
    case 4: {  // a part of itself somewhere else: valid pieces in the wrong places
      const std::string part = text.substr(at, random() % 60);
      text.insert(place(random, text), part);
      break;
    }
    default: {  // a number becomes another number
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit == std::string::npos) break;
      const size_t end = text.find_first_not_of("0123456789", digit);
      text.replace(digit, end - digit, kPieces[random() % std::size(kPieces)]);
      break;
    }
  }
}

int run_files(const std::vector<std::string>& files) {
  for (const std::string& name : files) {
    std::ifstream file(name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::cout << name << (run(text) == 1 ? ": accepted\n" : ": refused\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t seconds = 3, seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if ((argument == "--seconds" || argument == "--seed") && i + 1 < argc) {
      (argument == "--seed" ? seed : seconds) = std::atoll(argv[++i]);
    } else {
      files.push_back(argument);
    }
  }
  if (!files.empty()) return run_files(files);

  Random random(static_cast<uint64_t>(seed));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int64_t runs = 0, accepted = 0;
  while (std::chrono::steady_clock::now() < end) {
    const uint64_t value = random() % 50;
    // Both kinds go to both readers: a file of the other kind must be refused as well.
    std::string text = random() % 2 == 0
                           ? lowtide::plan_to_json(lowtide::test::random_plan(value))
                           : lowtide::trace_to_json(lowtide::test::random_trace(value, 3));
    for (uint64_t changes = random() % 4; changes > 0; --changes) change(random, text);
    accepted += run(text);
    ++runs;
  }
  std::cout << runs << " texts, " << accepted << " accepted, seed " << seed << '\n';
  return accepted > 0 && accepted < runs ? 0 : 1;
}
