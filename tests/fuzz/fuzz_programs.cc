// Random training programs under Lowtide, by seed: `fuzz_programs [--count N] [--first SEED]
// [--seconds N] [--every N]`, or one as a failure printed it: `fuzz_programs --program TEXT`. Ends
// after the count or the time. Prints a line every `--every` programs and, last, the tally for
// scripts/fuzz_programs.py; exit 1 where a program was wrong, with its seed and the smallest
// program that still is.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "random/judge.h"

namespace {

using lowtide::testing::Tally;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run_program(const std::string& text) {
  Tally tally;
  const auto program = lowtide::testing::from_text(text);
  const std::string finding = lowtide::testing::refusal_of(program).empty()
                                  ? lowtide::testing::judge(program, tally)
                                  : lowtide::testing::judge_refusal(program, tally);
  std::cout << (finding.empty() ? "right" : finding) << '\n' << tally.text() << '\n';
  return finding.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  std::map<std::string, uint64_t> number = {
      {"--count", 1000}, {"--first", 1}, {"--every", 500}, {"--seconds", 1'000'000}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string argument = argv[i];
    if (argument == "--program") return run_program(argv[i + 1]);
    number[argument] = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const uint64_t first = number["--first"];
  const auto start = std::chrono::steady_clock::now();
  Tally tally;
  uint64_t wrong = 0;
  uint64_t done = 0;
  while (done < number["--count"] && seconds_since(start) < double(number["--seconds"])) {
    const std::string finding = lowtide::testing::judge_seed(first + done, tally);
    ++done;
    if (!finding.empty()) {
      ++wrong;
      std::cout << finding << std::endl;
    }
    if (done % number["--every"] == 0) {
      std::cout << "seeds " << first << " to " << first + done - 1 << ", "
                << static_cast<int>(seconds_since(start)) << " s, " << wrong << " wrong; "
                << tally.text() << std::endl;
    }
  }
  std::cout << "TALLY programs=" << tally.programs << " pairs=" << tally.pairs
            << " dropped=" << tally.dropped << " evicted=" << tally.evicted
            << " diverged=" << tally.diverged << " refused=" << tally.refused
            << " refused_alike=" << tally.refused_alike << " wrong=" << wrong << '\n';
  return wrong == 0 ? 0 : 1;
}
