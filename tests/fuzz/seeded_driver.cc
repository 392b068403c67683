// Drives a target without libFuzzer: valid files, changed more and more, from one seed.
// `fuzz_x [--seconds N] [--seed S] [FILE ...]`; files are run as they are (to repeat a finding).
// Prints what it did; exit 1 when it never saw a text accepted or never one refused.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "fuzz/texts.h"

namespace lowtide::fuzz {
namespace {

int run_files(const std::vector<std::string>& files) {
  for (const std::string& name : files) {
    std::ifstream file(name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::cout << name << (accepted(text) ? ": accepted\n" : ": refused\n");
  }
  return 0;
}

int run_random(int64_t seconds, uint64_t seed) {
  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int64_t runs = 0, taken = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::string text = valid_text(random);
    for (uint64_t changes = random() % 4; changes > 0; --changes) change(random, text);
    taken += accepted(text) ? 1 : 0;
    ++runs;
  }
  std::cout << runs << " texts, " << taken << " accepted, seed " << seed << '\n';
  return taken > 0 && taken < runs ? 0 : 1;
}

}  // namespace
}  // namespace lowtide::fuzz

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
  return files.empty() ? lowtide::fuzz::run_random(seconds, static_cast<uint64_t>(seed))
                       : lowtide::fuzz::run_files(files);
}
