#include "fuzz/texts.h"

#include <iterator>

#include "core/trace_file.h"
#include "support/synthetic_instance.h"
#include "unit/core/random_values.h"

namespace lowtide::fuzz {
namespace {

// Pieces that readers trip over more often than over random bytes.
constexpr const char* kPieces[] = {"null",
                                   "-1",
                                   "1e999",
                                   "9223372036854775808",
                                   "9223372036854775807",
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
                                   "0",
                                   "1",
                                   "2147483647"};

size_t place(Random& random, const std::string& text) { return random() % (text.size() + 1); }

// What stands instead of a number: its neighbours, which off-by-one checks let through, or a piece.
std::string other_number(Random& random, const std::string& digits) {
  if (random() % 2 == 0 || digits.size() > 18) return kPieces[random() % std::size(kPieces)];
  return std::to_string(std::stoll(digits) + (random() % 2 == 0 ? 1 : -1));
}

}  // namespace

std::string valid_text(Random& random) {
  const uint64_t value = random() % 50;
  const int ops = 1 + static_cast<int>(random() % 3);
  switch (random() % 3) {
    case 0:
      return plan_to_json(test::random_plan(value));
    case 1:
      return testing::random_instance(value, ops);
    default:
      return trace_to_json(test::random_trace(value, ops));
  }
}

void change(Random& random, std::string& text) {
  const size_t at = place(random, text);
  switch (random() % 8) {
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
      const std::string digits = text.substr(digit, end - digit);
      text.replace(digit, digits.size(), other_number(random, digits));
      break;
    }
  }
}

}  // namespace lowtide::fuzz
