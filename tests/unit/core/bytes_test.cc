#include "core/bytes.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"

namespace lowtide {
namespace {

struct Row {
  const char* text;
  int64_t value;
};

TEST(BytesTest, ParsesWhatPeopleWrite) {
  const Row rows[] = {
      {"0", 0},
      {"1048576", 1048576},
      {"17 B", 17},
      {"8GiB", int64_t{8} << 30},
      {"8gib", int64_t{8} << 30},
      {"8GB", 8'000'000'000},
      {"1.5 MiB", 1'572'864},
      {"300M", 300 * 1024 * 1024},
      {"4k", 4096},
      {"4kB", 4000},
      {" 2 TiB ", int64_t{2} << 40},
      {"0.5T", int64_t{1} << 39},
      {"0.0001 KiB", 0},
      {"1.999999999999999999KiB", 2047},
      {"0007MiB", 7 * 1024 * 1024},
      {"9223372036854775807", INT64_MAX},
      {"8388607TiB", int64_t{8388607} << 40},
  };
  for (const Row& row : rows) EXPECT_EQ(parse_bytes(row.text), row.value) << row.text;
}

TEST(BytesTest, RefusesAnythingElse) {
  for (const char* text : {"",
                           " ",
                           "GiB",
                           "-1",
                           "-1GiB",
                           "+1",
                           "1.5",
                           "1.5B",
                           "1.",
                           ".5GiB",
                           "1e9",
                           "0x10",
                           "nan",
                           "inf",
                           "1 GiB extra",
                           "1GiBs",
                           "1,5GiB",
                           "1 Gi B",
                           "1PiB",
                           "8388608TiB",
                           "9223372036854775808",
                           "99999999999999999999999999999999",
                           "1.2.3MiB",
                           "\xff\xfe",
                           "١GiB"}) {
    EXPECT_THROW((void)parse_bytes(text), InvalidInput) << text;
  }
}

TEST(BytesTest, ErrorNamesTheOptionTheTextAndTheFix) {
  try {
    (void)parse_bytes("many\n", "--budget");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(error.message().find("--budget 'many?'"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("Fix:"), std::string::npos);
  }
}

TEST(BytesTest, ErrorStaysShortForALongText) {
  try {
    (void)parse_bytes(std::string(1'000'000, 'x'));
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_LT(error.message().size(), 300U);
  }
}

TEST(BytesTest, FormatsWithAtMostFourDigits) {
  constexpr int64_t kMi = 1024 * 1024, kGi = kMi * 1024;
  const Row rows[] = {
      {"0 B", 0},
      {"17 B", 17},
      {"1023 B", 1023},
      {"1.0 KiB", 1024},
      {"4.0 KiB", 4096},
      {"999.9 KiB", 1023898},
      {"1000 KiB", 1024000},
      {"1023 KiB", kMi - 1024},
      {"1.0 MiB", kMi - 1},
      {"312.0 MiB", 312 * kMi},
      {"1.50 GiB", kGi + kGi / 2},
      {"12.34 GiB", 12 * kGi + kGi * 34 / 100},
      {"123.5 GiB", 123 * kGi + kGi / 2},
      {"1.00 TiB", 1024 * kGi},
      {"8192 PiB", INT64_MAX},
      {"-4.0 KiB", -4096},
      {"-8192 PiB", INT64_MIN},
  };
  for (const Row& row : rows) EXPECT_EQ(format_bytes(row.value), row.text) << row.value;
}

TEST(BytesTest, FormattedTextParsesBackWithinItsPrecision) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<int64_t>(random() >> (15 + random() % 48));  // below 512 TiB
    const int64_t back = parse_bytes(format_bytes(value));
    EXPECT_LE(std::abs(back - value), value / 20 + 1) << value << " " << format_bytes(value);
  }
}

TEST(DurationTest, ParsesWhatPeopleWrite) {
  const Row rows[] = {{"250ms", 250'000'000},
                      {"1.5s", 1'500'000'000},
                      {"10us", 10'000},
                      {"3ns", 3},
                      {"2min", 120'000'000'000},
                      {"1 h", 3'600'000'000'000},
                      {"0s", 0},
                      {"0.25 US", 250},
                      {"9223372036854775807ns", INT64_MAX}};
  for (const Row& row : rows) EXPECT_EQ(parse_duration(row.text), row.value) << row.text;
}

TEST(DurationTest, RefusesAnythingElse) {
  for (const char* text : {"", "250", "0", "1.5ns", "-1s", "1m", "1 sec", "s", "1e3s", "nan s",
                           "9223372036854775808ns", "9999999999min"}) {
    EXPECT_THROW((void)parse_duration(text), InvalidInput) << text;
  }
}

TEST(DurationTest, FormatsWithThreeDigits) {
  const Row rows[] = {{"0 ns", 0},
                      {"12 ns", 12},
                      {"999 ns", 999},
                      {"1.00 us", 1000},
                      {"870 us", 870'000},
                      {"13.1 ms", 13'100'000},
                      {"1.00 ms", 999'999},
                      {"1.24 s", 1'240'000'000},
                      {"125 s", 125'000'000'000},
                      {"4000 s", 4'000'000'000'000},
                      {"-870 us", -870'000},
                      {"9223372037 s", INT64_MAX}};
  for (const Row& row : rows) EXPECT_EQ(format_duration(row.value), row.text) << row.value;
}

}  // namespace
}  // namespace lowtide
