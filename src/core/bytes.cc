#include "core/bytes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "core/error.h"

namespace lowtide {
namespace {

using Wide = unsigned __int128;  // exact decimals: no double rounding, no locale

struct Unit {
  std::string_view name;  // lower case
  int64_t scale;
};

constexpr int64_t kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024,
                  kPi = kTi * 1024;

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"kib", kKi},
    {"kb", 1'000},
    {"m", kMi},
    {"mib", kMi},
    {"mb", 1'000'000},
    {"g", kGi},
    {"gib", kGi},
    {"gb", 1'000'000'000},
    {"t", kTi},
    {"tib", kTi},
    {"tb", 1'000'000'000'000},
};

constexpr Unit kTimeUnits[] = {
    {"ns", 1},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
    {"min", 60'000'000'000},
    {"h", 3'600'000'000'000},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view take_digits(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  const std::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

// A decimal number and a unit of `units`, rounded down to a whole number of the smallest unit.
// Empty = not such a text, or above INT64_MAX.
std::optional<int64_t> parse_quantity(std::string_view text, std::span<const Unit> units) {
  constexpr size_t kMaxDigits = 18;  // 10^18 * 2^40 * 10 stays far below 2^128
  text = trim(text);
  std::string_view whole = take_digits(text);
  if (whole.empty()) return std::nullopt;
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size() - 1));
  std::string_view fraction;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return std::nullopt;
  }
  if (whole.size() > kMaxDigits + 1 || fraction.size() > kMaxDigits) return std::nullopt;
  const std::string name = lower(trim(text));
  const auto unit =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  if (unit == units.end()) return std::nullopt;
  if (!fraction.empty() && unit->scale == 1) return std::nullopt;  // half a byte

  Wide whole_value = 0, fraction_value = 0, divisor = 1;
  for (const char c : whole) whole_value = whole_value * 10 + static_cast<unsigned>(c - '0');
  for (const char c : fraction) {
    fraction_value = fraction_value * 10 + static_cast<unsigned>(c - '0');
    divisor *= 10;
  }
  const Wide scale = static_cast<Wide>(unit->scale);
  const Wide value = whole_value * scale + fraction_value * scale / divisor;
  if (value > static_cast<Wide>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// The text as it may appear in a message: short and printable.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, 40)) result += (c >= ' ' && c != 127) ? c : '?';
  return result + (text.size() > 40 ? "...'" : "'");
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

// value / unit with `decimals` decimals, half up. Empty when that needs more than `max_digits`.
std::optional<std::string> fixed(uint64_t value, uint64_t unit, int decimals, size_t max_digits) {
  Wide power = 1;
  for (int i = 0; i < decimals; ++i) power *= 10;
  const auto scaled = static_cast<uint64_t>((static_cast<Wide>(value) * power + unit / 2) / unit);
  std::string digits = std::to_string(scaled);
  const auto least = static_cast<size_t>(decimals) + 1;
  if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
  if (digits.size() > max_digits) return std::nullopt;
  if (decimals > 0) digits.insert(digits.size() - static_cast<size_t>(decimals), ".");
  return digits;
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view what) {
  if (const auto value = parse_quantity(text, kByteUnits)) return *value;
  throw InvalidInput(std::string(what) + " " + quoted(text) +
                     " is not a number of bytes. Fix: write it like 8GiB, 1.5MiB, 300M (= MiB), "
                     "8GB or 1048576, below 8 EiB");
}

int64_t parse_duration(std::string_view text, std::string_view what) {
  if (const auto value = parse_quantity(text, kTimeUnits)) return *value;
  throw InvalidInput(std::string(what) + " " + quoted(text) +
                     " is not a duration. Fix: write it like 250ms, 1.5s, 10us, 3ns, 2min or 1h, "
                     "below 292 years");
}

std::string format_bytes(int64_t bytes) {
  struct Step {
    const char* name;
    int64_t unit;
    int decimals;
  };
  static constexpr Step kSteps[] = {
      {" KiB", kKi, 1}, {" MiB", kMi, 1}, {" GiB", kGi, 2}, {" TiB", kTi, 2}, {" PiB", kPi, 2}};
  const uint64_t size = magnitude(bytes);
  const std::string sign = bytes < 0 ? "-" : "";
  if (size < kKi) return sign + std::to_string(size) + " B";
  for (const Step& step : kSteps) {
    const auto unit = static_cast<uint64_t>(step.unit);
    for (int decimals = step.decimals; decimals >= 0; --decimals) {
      const auto text = fixed(size, unit, decimals, 4);
      if (!text) continue;
      if (decimals == 0 && *text >= "1024" && step.unit != kPi) break;  // the next unit says it
      return sign + *text + step.name;
    }
  }
  return sign + std::to_string(size / static_cast<uint64_t>(kPi)) + " PiB";
}

std::string format_duration(int64_t ns) {
  struct Step {
    const char* name;
    uint64_t unit;
  };
  static constexpr Step kSteps[] = {{" us", 1'000}, {" ms", 1'000'000}, {" s", 1'000'000'000}};
  const uint64_t time = magnitude(ns);
  const std::string sign = ns < 0 ? "-" : "";
  if (time < 1'000) return sign + std::to_string(time) + " ns";
  for (const Step& step : kSteps) {
    for (int decimals = 2; decimals >= 0; --decimals) {
      if (const auto text = fixed(time, step.unit, decimals, 3)) return sign + *text + step.name;
    }
  }
  return sign + *fixed(time, 1'000'000'000, 0, 20) + " s";
}

}  // namespace lowtide
