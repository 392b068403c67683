// Bytes and durations as people write them. All values are integers: bytes and nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide {

// Parses "8GiB", "8GB", "1.5 MiB", "300M" (= MiB), "1048576", case-insensitive. Result in bytes, >=
// 0. Throws InvalidInput on anything else (empty, negative, overflow, unknown unit, NaN), naming
// `what`.
[[nodiscard]] int64_t parse_bytes(std::string_view text, std::string_view what = "size");

// "1.50 GiB", "312.0 MiB", "4.0 KiB", "17 B": binary units, at most four significant digits.
[[nodiscard]] std::string format_bytes(int64_t bytes);

// Parses "250ms", "1.5s", "10us", "3ns", "2min". Result in ns. Throws InvalidInput.
[[nodiscard]] int64_t parse_duration(std::string_view text, std::string_view what = "duration");

// "1.24 s", "13.1 ms", "870 us", "12 ns".
[[nodiscard]] std::string format_duration(int64_t ns);

}  // namespace lowtide
